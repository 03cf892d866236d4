"""Masked and encoder-decoder models with real weights: are the readings right, and do they make sense?

    python -m studies.other_forms.real_forms masked FOLDER   a Korean masked model with its head, as ALBERT-kor-base
    python -m studies.other_forms.real_forms translation FOLDER   a Marian model from English to French

Both compare padded batches with prompts read one by one and with plain `transformers`, then print readings whose right
answer is known. README.md says where the models come from. Pickled weights are opened: use folders you trust.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccrank.io.taskfiles import read_tasks
from ccrank.metrics.order import kendall_tau
from ccrank.metrics.tasks import mean_with_interval
from ccrank.models import Reader
from ccrank.models.load.loading import LoadedModel, load_model
from ccrank.models.tokenize.tokenized import TokenizedPrompt
from ccrank.prompts import Piece, Prompt, load_templates
from ccrank.reader_options import ReaderOptions
from ccrank.util.files import parse_toml

HERE = Path(__file__).parent
KOREAN = HERE.parents[1] / "examples" / "korean"
SHOWN = 5
"""How many of the likeliest words are printed."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("form", choices=["masked", "translation"])
    parser.add_argument("folder", help="the model's folder")
    arguments = parser.parse_args()
    loaded = load_model(arguments.folder, ReaderOptions(allow_pickle=True, device="cpu"))
    sentences = parse_toml(HERE / "real_forms.toml")
    if arguments.form == "masked":
        masked(loaded, sentences["cloze"])
    else:
        translation(loaded, sentences["translations"])


# masked ---------------------------------------------------------------------------------------------------------------


def masked(loaded: LoadedModel, cloze: Sequence[Sequence[str]]) -> None:
    """Compare the paths on some pairs and single prompts of each Korean task, then fill gaps."""
    templates = load_templates(KOREAN / "templates.toml")
    prompts: list[Prompt] = []
    candidates: list[tuple[str, ...]] = []
    for task in read_tasks(KOREAN / "tasks.jsonl"):
        places = range(len(task.items))
        pairs = [templates.pair(task, place - 1, place, "masked") for place in places[1:3]]
        singles = [templates.single(task, place, "masked", "poles") for place in places[:2]]
        prompts += pairs + singles
        candidates += [templates["pair"].candidates] * len(pairs)
        candidates += [task.criterion.poles or ()] * len(singles)
    differences(loaded, prompts, candidates)
    reader, fitting = Reader(loaded), 0
    print(f"\n{'fits':<8}{'log p':>7}  {'does not':<8}{'log p':>7}  likeliest words")
    for text, right, wrong in cloze:
        [readings] = reader.read([gap(text)], [right, wrong], log_probabilities=True).logits
        fitting += int(readings[0] > readings[1])
        words = " ".join(likeliest(loaded, text))
        print(f"{right:<8}{readings[0]:7.2f}  {wrong:<8}{readings[1]:7.2f}  {words}  | {text}")
    print(f"\nThe word that fits is likelier in {fitting} of {len(cloze)} sentences.")


def gap(text: str) -> Prompt:
    """A sentence with one {slot} as a prompt."""
    before, after = text.split("{slot}")
    return Prompt((Piece(before), Piece("", "slot"), Piece(after)))


def likeliest(loaded: LoadedModel, text: str) -> list[str]:
    """The model's own first choices for the gap, by plain `transformers`."""
    [encoded] = Reader(loaded).prompt_tokenizer.encode([gap(text)], [()])
    with torch.inference_mode():
        logits = loaded.model(torch.tensor([encoded.tokens])).logits[0, encoded.slot]
    return [loaded.tokenizer.decode([token]) for token in logits.topk(SHOWN).indices.tolist()]


# translation ----------------------------------------------------------------------------------------------------------


def translation(loaded: LoadedModel, sentences: Sequence[Sequence[str]]) -> None:
    """Compare the paths, then rank French sentences by their log-probability as a translation of an English one."""
    sources = [Prompt((Piece(row[0], "item"), Piece("", "slot"))) for row in sentences]
    graded = [tuple(row[1:]) for row in sentences]
    differences(loaded, sources, graded)
    reader = Reader(loaded)
    right = [row[1] for row in sentences]
    table = reader.read(sources, right, log_probabilities=True).logits
    assert table is not None
    first = int((table.argmax(axis=1) == np.arange(len(table))).sum())
    others = table[~np.eye(len(table), dtype=bool)]
    print(
        f"\nOf the {len(right)} French sentences the right one is the likeliest for {first} of the English ones:"
    )
    print(f"mean log p {np.diag(table).mean():.1f} of right ones, {others.mean():.1f} of the others.")
    print(f"\n{'given':<28}{'none above one wrong word':>26}{'mean τ':>9}{'95 %':>17}")
    for name, given in (
        ("its own English sentence", sources),
        ("the next English sentence", sources[1:] + sources[:1]),
    ):
        taus, better = graded_taus(reader, given, graded)
        found = mean_with_interval(taus, np.random.default_rng(0))
        interval = f"[{found.low:+.2f}, {found.high:+.2f}]"
        print(f"{name:<28}{f'{better} of {len(taus)}':>26}{found.mean:+9.2f}{interval:>17}")


def graded_taus(
    reader: Reader, sources: Sequence[Prompt], graded: Sequence[Sequence[str]]
) -> tuple[list[float], int]:
    """τ between log p(translation | source) per token and the number of wrong words; and how often none is better than
    one."""
    readings = reader.read(sources, graded, log_probabilities=True)
    assert readings.logits is not None
    assert readings.answer_tokens is not None
    taus, better = [], 0
    for row, lengths, own in zip(readings.logits, readings.answer_tokens, graded, strict=True):
        scores = row[: len(own)] / lengths[: len(own)]
        taus.append(kendall_tau(scores, -np.arange(len(own), dtype=float)))
        better += int(scores[0] > scores[1])
    return taus, better


# both -----------------------------------------------------------------------------------------------------------------


def differences(loaded: LoadedModel, prompts: Sequence[Prompt], candidates: Sequence[Sequence[str]]) -> None:
    """Print the largest differences between the ways of reading the same prompts."""
    wish: dict[str, Any] = {"layers": "all", "items": True, "log_probabilities": True}
    padded, alone = (
        Reader(loaded, path=path).read(prompts, candidates, **wish) for path in ("padded", "one")
    )
    print(
        f"{loaded.name}: {len(prompts)} prompts, {padded.states.shape[1]} layers of {padded.states.shape[2]}"
    )
    print(f"{'largest difference of padded batches from':<46}{'log p':>9}{'states':>9}{'item states':>13}")
    gaps = [
        np.nanmax(np.abs(getattr(padded, name) - getattr(alone, name)))
        for name in ("logits", "states", "item_states")
    ]
    print(f"{'prompts read one by one':<46}{gaps[0]:9.1e}{gaps[1]:9.1e}{gaps[2]:13.1e}")
    some = range(0, len(prompts), max(1, len(prompts) // 12))
    encoded = Reader(loaded).prompt_tokenizer.encode(
        [prompts[index] for index in some], [candidates[index] for index in some], items=True
    )
    worst = np.zeros(3)
    for index, one in zip(some, encoded, strict=True):
        scores, states, item_states = plain(loaded, one)
        ours = (padded.logits[index, : len(scores)], padded.states[index], padded.item_states[index])
        found = [
            np.abs(own - other).max() for own, other in zip(ours, (scores, states, item_states), strict=True)
        ]
        worst = np.maximum(worst, found)
    name = f"plain transformers, {len(encoded)} prompts"
    print(f"{name:<46}{worst[0]:9.1e}{worst[1]:9.1e}{worst[2]:13.1e}")


@torch.inference_mode()
def plain(loaded: LoadedModel, encoded: TokenizedPrompt) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The log-probability of each answer, and the states of all layers at the slot and the item, by the model's own
    forward pass: one prompt and one answer at a time, no padding."""
    ids = torch.tensor([encoded.tokens])
    scores = []
    for answer in encoded.answers:
        if loaded.form == "masked":
            masks = [loaded.tokenizer.mask_token_id] * len(answer)
            tokens = [*encoded.tokens[: encoded.slot], *masks, *encoded.tokens[encoded.slot + 1 :]]
            logits, start = loaded.model(torch.tensor([tokens])).logits[0], encoded.slot
        else:
            decoder = torch.tensor([[*encoded.decoder, *answer[:-1]]])
            logits, start = loaded.model(ids, decoder_input_ids=decoder).logits[0], len(encoded.decoder) - 1
        logs = logits.log_softmax(-1)
        scores.append(sum(float(logs[start + place, token]) for place, token in enumerate(answer)))
    if loaded.form == "masked":
        output = loaded.model(ids, output_hidden_states=True)
        at_slot = at_item = output.hidden_states
    else:
        output = loaded.model(
            ids, decoder_input_ids=torch.tensor([encoded.decoder]), output_hidden_states=True
        )
        at_slot, at_item = output.decoder_hidden_states, output.encoder_hidden_states
    return (
        np.array(scores),
        torch.stack([layer[0, encoded.slot] for layer in at_slot]).numpy(),
        torch.stack([layer[0, encoded.item] for layer in at_item[: len(at_slot)]]).numpy(),
    )


if __name__ == "__main__":
    main()
