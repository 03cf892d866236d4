"""The catalog of models: what they need, which are here, and which one `auto` takes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from huggingface_hub import constants
from tiny import tiny_model

from ccrank.models import Reader
from ccrank.models.capacity import known_speed, measure_speed
from ccrank.models.load import catalog as catalog
from ccrank.models.load.catalog import (
    KnownModel,
    best_model,
    families,
    hub_models,
    hub_snapshot,
    named_models,
)
from ccrank.reader_options import ReaderOptions

GIB = 2**30


def entry(name, parameters, **changes):
    return KnownModel(
        name,
        "",
        "MIT",
        hub=f"org/{name}",
        parameters=parameters,
        **{"form": "causal", "local": True, **changes},
    )


@pytest.fixture
def choose(monkeypatch):
    """`choose([entries], free bytes)` → what `auto` picks."""

    def run(entries, free=8 * GIB, **options):
        monkeypatch.setattr(catalog, "named_models", lambda: entries)
        monkeypatch.setattr(catalog, "hub_models", list)
        monkeypatch.setattr(catalog, "available_memory", lambda device: free)
        return best_model(ReaderOptions(device="cpu", **options))

    return run


SMALL, MIDDLE, LARGE = entry("small", 10**8), entry("middle", 10**9), entry("large", 4 * 10**9)


def test_the_largest_that_fits_is_taken(choose):
    """Without measured τ size decides, and free memory at the requested precision limits it."""
    assert choose([SMALL, MIDDLE, LARGE])[0] == "middle"
    assert choose([SMALL, MIDDLE, LARGE], 30 * GIB)[0] == "large"
    assert choose([SMALL, MIDDLE, LARGE], 12 * GIB, dtype="bfloat16")[0] == "large"
    assert choose([SMALL, MIDDLE, LARGE], 3 * GIB, quantize="int4")[0] == "large"


def test_measured_results_come_before_size(choose):
    """A smaller model with a higher measured τ is taken, and the reason states the number."""
    name, why = choose(
        [entry("a", 10**8, tau={"words": 0.4, "facts": 0.2}), entry("b", 10**9, tau={"words": 0.1}), LARGE]
    )
    assert name == "a"
    assert "+0.30" in why


def test_what_cannot_be_used_is_left_out(choose):
    """Models that are not on disk, have no head or are not causal are never picked; then it is the default."""
    others = [
        entry("away", 10**9, local=False),
        entry("headless", 10**9, head=False),
        entry("t5", 10**9, form="encoder_decoder"),
    ]
    name, why = choose(others)
    assert name == "default"
    assert "no model is on disk" in why
    name, why = choose([LARGE], GIB)
    assert name == "default"
    assert "fits" in why


def test_memory_follows_from_the_number_of_weights():
    """Four bytes a weight in float32, half a byte in int4."""
    assert [MIDDLE.memory(name) for name in catalog.SHOWN] == [4 * 10**9, 2 * 10**9, 10**9, 5 * 10**8]


def test_the_shipped_catalog():
    """Each model has a size and a licence; hub ids occur once; results are measured numbers between -1 and 1."""
    entries = [*named_models(), *hub_models()]
    assert all(one.parameters > 10**7 for one in entries)
    assert all(one.licence for one in entries)
    assert all(one.hub.count("/") == 1 for one in entries if one.hub)
    ids = [one.hub for one in hub_models()]
    assert len(ids) == len(set(ids))
    assert all(-1 <= value <= 1 for one in entries for value in one.tau.values())
    assert set(families()) == {"causal", "masked", "encoder_decoder"}


def test_results_in_the_catalog_are_the_measured_ones():
    """Each τ of a short name is that of `auto` in the stored comparison of sizes, and all are of the same datasets."""
    with (Path(__file__).parents[2] / "studies" / "sizes" / "sizes.csv").open(
        encoding="utf-8", newline=""
    ) as stream:
        rows = [row for row in csv.DictReader(stream) if row["method"] == "auto"]
    labels = {"smollm2-135m-q4": "SmolLM2-135M", "gemma-3-270m-q4": "Gemma-3-270M"}
    measured = {one.name: one.tau for one in named_models() if one.tau}
    assert set(measured) == set(labels)
    assert len({frozenset(tau) for tau in measured.values()}) == 1
    for name, tau in measured.items():
        stored = {row["dataset"]: float(row["tau"]) for row in rows if row["model"] == labels[name]}
        assert dict(tau) == {dataset: stored[dataset] for dataset in tau}


def test_the_hubs_cache_is_looked_at(monkeypatch, tmp_path):
    """A hub id is here if a snapshot of it has weights."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert not hub_snapshot("org/name")
    snapshot = tmp_path / "models--org--name" / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    assert not hub_snapshot("org/name")
    (snapshot / "model.safetensors").touch()
    assert hub_snapshot("org/name") == snapshot
    assert hub_snapshot("org/name", "0" * 40) == snapshot
    assert hub_snapshot("org/name", "1" * 40) is None


def test_speed_is_measured_and_remembered():
    """The speed is stored under the model's name, with device and precision."""
    reader = Reader(tiny_model("llama", max_position_embeddings=512))
    assert known_speed(reader.name) is None
    speed = measure_speed(reader)
    assert speed["tokens_per_second"] > 0
    assert (speed["device"], speed["dtype"]) == ("cpu", "float32")
    assert known_speed(reader.name) == speed
    assert known_speed("another") is None


def test_opening_auto_opens_the_pick(monkeypatch, tmp_path):
    """`Reader.open("auto")` opens the model that was picked and says why."""
    from tiny import save_model

    from ccrank.models import reader as reading

    folder = str(save_model(tiny_model("llama"), tmp_path))
    monkeypatch.setattr(reading, "best_model", lambda options: (folder, "auto: because"))
    said = []
    assert Reader.open("auto", say=said.append).name == folder
    assert said[0] == "auto: because"
