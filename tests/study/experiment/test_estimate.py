"""`bench --estimate`: what a study will take, before anything is loaded."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
import transformers
from tiny import save_model, tiny_reader
from typer.testing import CliRunner

from ccrank.cli.commands import app
from ccrank.models.load.catalog import hub_models
from ccrank.study.experiment import estimate as estimates
from ccrank.study.experiment.estimate import estimate, paper_models
from ccrank.study.experiment.runner import run_study
from ccrank.study.experiment.study import Study, preset
from ccrank.study.experiment.units import load_task_sets

ARCHITECTURES = {
    "microsoft/deberta-base": (
        transformers.AutoModelForMaskedLM,
        transformers.DebertaConfig(
            vocab_size=50265, relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False,
            type_vocab_size=0,
        ),
    ),
    "openai-community/gpt2": (transformers.AutoModelForCausalLM, transformers.GPT2Config()),
    "mosaicml/mpt-7b": (
        transformers.AutoModelForCausalLM,
        transformers.MptConfig(d_model=4096, n_heads=32, n_layers=32, vocab_size=50432, no_bias=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_papers_models_have_as_many_weights_as_stated(name):
    """Counted on the meta device."""
    kind, config = ARCHITECTURES[name]
    with torch.device("meta"):
        model = kind.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == paper_models()[name]


def test_every_model_of_the_preset_has_a_known_size():
    """So that its estimate needs no network; three are the paper's, ten are on the list of models."""
    names = preset("paper-models")["models"]
    listed = {entry.name for entry in hub_models()}
    assert {name for name in names if name not in listed} == set(paper_models()) == set(ARCHITECTURES)
    assert len(names) == 13
    assert preset("paper-models")["methods"] == preset("paper")["methods"]


def test_an_estimate_counts_what_is_left(tmp_path, monkeypatch):
    """Weights of a folder are counted, nothing of it is downloaded, and finished units need no time."""
    monkeypatch.setattr(estimates, "matmul_rate", lambda *_: 1e9)
    reader = tiny_reader()
    folder = save_model(reader.loaded, tmp_path / "model")
    study = Study((str(folder), "Qwen/Qwen3-4B-Base"), ("synthfacts",), ("length", "pca", "prompt-point"))
    sets = load_task_sets(study)
    local, hub = estimate(study, sets, tmp_path / "out")
    stored = sum(tensor.numel() for tensor in _stored(folder).values())
    assert (local.parameters, local.download, local.units) == (stored, 0, 3)
    assert hub.parameters == 4_022_468_096
    assert hub.download == 2 * hub.parameters
    assert hub.memory is not None
    assert hub.memory > 4 * hub.parameters  # float32 on a CPU, and room
    assert hub.seconds is not None
    assert local.seconds is not None
    assert hub.seconds / local.seconds == pytest.approx(hub.parameters / stored)
    run_study(
        Study((str(folder),), ("synthfacts",), ("length", "pca", "prompt-point")),
        tmp_path / "out",
        open_reader=lambda name: reader,
    )
    assert [row.units for row in estimate(study, sets, tmp_path / "out")] == [0, 3]


def _stored(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return {name: value for path in folder.glob("*.safetensors") for name, value in load_file(path).items()}


def test_the_command_shows_the_estimate_and_starts_nothing(tmp_path):
    """One row for each model, and no folder."""
    words = ["bench", "--preset", "paper-models", "--datasets", "synthfacts", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--estimate"], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    for name in preset("paper-models")["models"]:
        assert name in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("answer", "parameters"),
    [
        (b'{"safetensors": {"total": 1234}}', 1234),
        (b'{"id": "x"}', None),
        (b"<html>", None),
        (OSError("down"), None),
    ],
)
def test_the_hub_is_asked_of_models_that_are_not_listed(monkeypatch, answer, parameters):
    """Once, with a time limit; whatever it answers, an estimate does not fail."""
    asked = []

    def urlopen(address, timeout):
        asked.append((address, timeout))
        if isinstance(answer, OSError):
            raise answer
        return io.BytesIO(answer)

    monkeypatch.setattr(estimates, "urlopen", urlopen)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    assert estimates.parameters_of("nobody/a-model") == parameters
    [(address, timeout)] = asked
    assert address.endswith("/api/models/nobody/a-model?expand[]=safetensors")
    assert timeout < 10
