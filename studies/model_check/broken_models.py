"""Does the check of a first load catch models that are broken on purpose? Prints a table, one row for each mistake.

python -m studies.model_check.broken_models default gemma-3-270m path/to/another
python -m studies.model_check.broken_models --bases default
python -m studies.model_check.broken_models --matrices default
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ccrank.models import LoadedModel, Reader, load_model
from ccrank.models.check.model_check import check_model
from ccrank.models.load.hub import find_model
from ccrank.reader_options import ReaderOptions

Change = Callable[[str, torch.Tensor, int], torch.Tensor | None]
"""Name and values of a weight, size of a head → new values, or None to keep them."""


def norms_plus_one(name: str, weight: torch.Tensor, head: int) -> torch.Tensor | None:
    """Gemma's norms store weight - 1, as others do not."""
    return weight + 1 if "norm" in name else None


def halves_not_permuted(name: str, weight: torch.Tensor, head: int) -> torch.Tensor | None:
    """llama.cpp keeps the two halves of a rotary pair side by side."""
    if "q_proj" not in name and "k_proj" not in name:
        return None
    return weight.view(-1, 2, head // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def one_bit(name: str, weight: torch.Tensor, head: int) -> torch.Tensor | None:
    """Signs alone, scaled row by row."""
    if weight.dim() != 2 or "_proj" not in name:
        return None
    return weight.sign() * weight.abs().mean(1, keepdim=True)


WEIGHTS: dict[str, Change] = {
    "norm weights + 1": norms_plus_one,
    "rotary halves not permuted": halves_not_permuted,
    "weights of one bit": one_bit,
}
BASES = (1e-4, 1e-3, 0.01, 0.1, 10.0, 100.0)
"""Factors of the base of rotary embeddings."""


def with_weights(name: str, change: Change) -> LoadedModel:
    """A model some of whose weights are changed."""
    loaded = load_model(name, ReaderOptions(device="cpu"))
    config = loaded.model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    with torch.no_grad():
        for key, weight in loaded.model.named_parameters():
            changed = change(key, weight, head)
            if changed is not None:
                weight.copy_(changed.clone())
    return loaded


@contextmanager
def with_file(name: str, file: str, change: Callable[[dict[str, Any]], None]) -> Iterator[LoadedModel]:
    """A model of which one JSON file is changed."""
    source = find_model(name).folder
    with tempfile.TemporaryDirectory() as folder:
        for path in source.iterdir():
            Path(folder, path.name).symlink_to(path.resolve())
        stored = json.loads((source / file).read_text(encoding="utf-8"))
        change(stored)
        Path(folder, file).unlink()
        Path(folder, file).write_text(json.dumps(stored), encoding="utf-8")
        yield load_model(folder, ReaderOptions(device="cpu"))


def shuffle_vocabulary(tokenizer: dict[str, Any]) -> None:
    """Each token gets the id of another."""
    vocabulary = tokenizer["model"]["vocab"]
    ids = list(vocabulary.values())
    random.Random(0).shuffle(ids)
    tokenizer["model"]["vocab"] = dict(zip(vocabulary, ids, strict=True))


def drop_merges(tokenizer: dict[str, Any]) -> None:
    """Every text is split into single characters, as a wrong conversion of Gemma did."""
    tokenizer["model"]["merges"] = []


def without_bos(name: str) -> Reader:
    """A reader that starts without the BOS token."""
    reader = Reader(load_model(name, ReaderOptions(device="cpu")))
    reader.prompt_tokenizer = replace(reader.prompt_tokenizer, bos=())
    return reader


def show(name: str, mistake: str, reader: Reader) -> None:
    """Print the row of one model."""
    start = time.process_time()
    verdict = check_model(reader)
    seconds = time.process_time() - start
    numbers = (
        "–" if value is None else f"{value:.2f}"
        for value in (verdict.order, verdict.copying, verdict.distant_copying, verdict.clozes)
    )
    cause = verdict.causes[0] if verdict.causes else ""
    print(
        f"| {name} | {mistake} | {' | '.join(numbers)} | {verdict.status} | {seconds:.1f} s | {cause} |",
        flush=True,
    )


def break_weights_and_tokenizer(name: str, has_bos: bool) -> None:
    """Break a model in every way but its base of rotary embeddings."""
    short = Path(name).name
    for mistake, change in WEIGHTS.items():
        show(short, mistake, Reader(with_weights(name, change)))
    with with_file(name, "tokenizer.json", shuffle_vocabulary) as loaded:
        show(short, "ids of tokens shuffled", Reader(loaded))
    with with_file(name, "tokenizer.json", drop_merges) as loaded:
        show(short, "tokenizer without merges", Reader(loaded))
    if has_bos:
        show(short, "BOS dropped", without_bos(name))
        show(short, "float16", Reader(load_model(name, ReaderOptions(device="cpu", dtype="float16"))))
    show(short, "none, bfloat16", Reader(load_model(name, ReaderOptions(device="cpu", dtype="bfloat16"))))


def damage_matrices(name: str) -> None:
    """Damage one matrix at a time: how far each sentence is from the figures of a listed model, and whether the general
    bounds, which apply under any other name, refuse it too."""

    def permuted(weight: torch.Tensor) -> torch.Tensor:
        return weight[torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))]

    loaded = load_model(name, ReaderOptions(device="cpu"))
    ways = (
        ("10.", "permuted", permuted),
        ("3.", "reversed", lambda one: one.flip(0)),
        ("3.", "negated", torch.neg),
    )
    for layer, mistake, change in ways:
        for key, weight in loaded.model.named_parameters():
            if f"layers.{layer}" not in key or weight.dim() != 2:
                continue
            before = weight.detach().clone()
            with torch.no_grad():
                weight.copy_(change(before))
            verdict, general = (
                check_model(Reader(replace(loaded, name=one))) for one in (loaded.name, "unlisted")
            )
            print(
                f"| {key} {mistake} | {verdict.difference:.1%} | {verdict.status} | {general.status} |",
                flush=True,
            )
            with torch.no_grad():
                weight.copy_(before)


def main() -> None:
    """Break each model in every way that it can be broken in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--bases", action="store_true", help="change the base of rotary embeddings only")
    parser.add_argument("--matrices", action="store_true", help="damage single matrices of a listed model")
    arguments = parser.parse_args()
    for name in arguments.models:
        if arguments.matrices:
            damage_matrices(name)
            continue
        short = Path(name).name
        loaded = load_model(name, ReaderOptions(device="cpu"))
        show(short, "none", Reader(loaded))
        has_bos, rotary = bool(loaded.bos), getattr(loaded.model.config, "rope_parameters", None)
        del loaded
        if not arguments.bases:
            break_weights_and_tokenizer(name, has_bos)
        for factor in BASES if rotary else ():

            def other_base(config: dict[str, Any], factor: float = factor) -> None:
                stored = config["rope_parameters"]
                for one in (
                    [stored] if "rope_theta" in stored else stored.values()
                ):  # one for each type of layer
                    one["rope_theta"] *= factor

            with with_file(name, "config.json", other_base) as loaded:
                show(short, f"rotary base × {factor:g}", Reader(loaded))


if __name__ == "__main__":
    main()
