"""What is wrong, missing or misleading in the paper on contrast-consistent ranking, one small demonstration each.

    python -m studies.paper_faults.faults loss        OrdRegCCR's printed loss is lowest where all scores are 1
    python -m studies.paper_faults.faults biases      the printed bias terms are 0 or infinite, and there are K or K − 1
    python -m studies.paper_faults.faults rule        the printed prediction of origCCS is 0 for a consistent probe
    python -m studies.paper_faults.faults head        a masked model without its head is loaded without an error
    python -m studies.paper_faults.faults chance      chance levels of |τ| and of accuracy with a free direction
    python -m studies.paper_faults.faults direction   what choosing the direction by gold adds
    python -m studies.paper_faults.faults start       probes that hardly leave their random start
    python -m studies.paper_faults.faults ceiling     a supervised ceiling that fits shuffled gold as well
    python -m studies.paper_faults.faults all

The last three read a model: the default one, ScalarAdj, last layer, unless told otherwise. README.md
discusses the results.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from ccrank.errors import CcrankError
from ccrank.models import Reader, load_model
from ccrank.models.load.transformers_settings import quiet_transformers
from ccrank.prompts import Piece, Prompt
from ccrank.reader_options import ReaderOptions
from ccrank.study.datasets import load_dataset
from studies.paper_faults.formulas import Finding, biases, chance, loss, rule
from studies.paper_faults.states import Material, ceiling, direction, material, start


def head(inputs: int = 200) -> Finding:
    """Tiny masked models whose checkpoints lack the head under the name that `transformers` expects."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in (
            ("BERT, complete", lambda path: save_tiny("bert", path, keep_head=True)),
            ("BERT, saved without its head", lambda path: save_tiny("bert", path, keep_head=False)),
            ("DeBERTa, its own head's names", lambda path: save_tiny("deberta", path, keep_head=True)),
        ):
            path = Path(folder) / name.split(",")[0] / name.split(",")[1].strip().replace(" ", "-")
            make(path)
            rows.append((name, *loaded_twice(path, inputs)))
    return Finding(
        "AutoModelForMaskedLM.from_pretrained on tiny checkpoints, each loaded twice",
        ("checkpoint", "error", "weights newly initialised", "equal answers of two loads", "ccrank"),
        tuple(rows),
        "A head that the checkpoint lacks is filled with random numbers; a message is logged, but no error is raised.\n"
        "Two loads of the same files then agree as often as guesses do. ccrank refuses to prompt the second model,\n"
        "and finds the head of the third.",
    )


def save_tiny(family: str, path: Path, keep_head: bool) -> None:
    """A tiny random masked model with a tokenizer of single characters, as a folder."""
    import transformers
    from safetensors.torch import load_file, save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(chr, range(33, 127))]
    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(path)
    small = {
        "vocab_size": len(words),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    torch.manual_seed(0)
    if family == "bert":
        transformers.BertForMaskedLM(transformers.BertConfig(**small)).save_pretrained(path)
    else:  # the published checkpoints have the head as `lm_predictions`, which is read with legacy=False alone
        config = transformers.DebertaConfig(**small, legacy=False)
        transformers.DebertaForMaskedLM(config).save_pretrained(path)
        settings = path / "config.json"
        settings.write_text(settings.read_text().replace('"legacy": false', '"legacy": true'))
    if not keep_head:
        weights = path / "model.safetensors"
        kept = {key: value for key, value in load_file(weights).items() if not key.startswith("cls.")}
        save_file(kept, weights, metadata={"format": "pt"})


def loaded_twice(path: Path, inputs: int) -> tuple[str, int, str, str]:
    """The error, the number of new weights, how often two loads prefer the same of two tokens, and what ccrank does."""
    from transformers import AutoModelForMaskedLM

    tokens = torch.randint(5, 90, (inputs, 8), generator=torch.Generator().manual_seed(1))
    answers, missing, error = [], 0, "none"
    for seed in (1, 2):
        torch.manual_seed(seed)
        try:
            model, info = AutoModelForMaskedLM.from_pretrained(path, output_loading_info=True)
        except (ValueError, RuntimeError, OSError) as raised:
            error = type(raised).__name__
            continue
        missing = len(info["missing_keys"])
        with torch.inference_mode():
            logits = model.eval()(tokens).logits[:, -1]
        answers.append(logits[:, 5] > logits[:, 6])
    equal = f"{float((answers[0] == answers[1]).float().mean()):.0%}" if len(answers) == 2 else "–"
    try:
        prompt = Prompt((Piece("a b "), Piece("", "slot")))
        Reader(load_model(str(path), ReaderOptions(device="cpu"))).read([prompt], ["c", "d"])
        ours = "answers"
    except CcrankError:
        ours = "refuses"
    return error, missing, equal, ours


# the command line -----------------------------------------------------------------------------------------------------

PLAIN: dict[str, Callable[[], Finding]] = {
    "loss": loss,
    "biases": biases,
    "rule": rule,
    "head": head,
    "chance": chance,
}
ON_STATES: dict[str, Callable[[Material], Finding]] = {
    "direction": direction,
    "start": start,
    "ceiling": ceiling,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fault", choices=[*PLAIN, *ON_STATES, "all"])
    parser.add_argument("--model", default="default")
    parser.add_argument("--dataset", default="scalaradj")
    parser.add_argument("--tasks", type=int, help="the first tasks only")
    parser.add_argument("--layer", type=int, default=-1)
    arguments = parser.parse_args()
    chosen = [*PLAIN, *ON_STATES] if arguments.fault == "all" else [arguments.fault]
    given: Material | None = None
    for place, fault in enumerate(chosen):
        if place:
            print("\n" + "-" * 100 + "\n")
        if fault in PLAIN:
            print(PLAIN[fault]())
            continue
        if given is None:
            tasks = load_dataset(arguments.dataset)[: arguments.tasks]
            name = f"{arguments.model}, {arguments.dataset}"
            given = material(tasks, Reader.open(arguments.model), arguments.layer, name)
        print(ON_STATES[fault](given))


if __name__ == "__main__":
    main()
