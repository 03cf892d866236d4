"""`register_objective` and plugins: a user's loss is trained, stored and shown like the packaged ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny import save_model, tiny_reader
from typer.testing import CliRunner

import ccrank
from ccrank.cli.commands import app
from ccrank.errors import CcrankError
from ccrank.methods import plugins
from ccrank.methods.plugins import load_plugin
from ccrank.methods.probing.fits import fit_each
from ccrank.methods.probing.losses import margin_loss, sup_margin_loss, triplet_loss
from ccrank.methods.probing.objectives import OBJECTIVES, Settings, settings_of
from ccrank.methods.registry import METHODS, get_method, register_objective
from ccrank.study.experiment.study import MethodSpec, Study
from ccrank.study.results.load import load_results

EXAMPLE = Path(__file__).parents[3] / "examples" / "soft_rank.py"


@pytest.fixture(autouse=True)
def _nothing_stays():
    """What a test registers is gone after it."""
    tables = (METHODS, OBJECTIVES, plugins._loaded)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def states(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(count, 12)) for count in (4, 6, 5)]


@pytest.mark.parametrize(
    ("packaged", "loss", "options"),
    [
        ("margin", margin_loss, {"sub_batch": "pairs"}),
        ("triplet", triplet_loss, {"sub_batch": "triples"}),
        ("sup-margin", sup_margin_loss, {"supervised": True}),
    ],
)
def test_a_packaged_loss_registered_again_is_the_packaged_probe(packaged, loss, options):
    """The same weights, on whole tasks and with sub-batches, where the packaged slopes are written by hand."""

    def own(scores, mask, *gold, margin=0.0):
        return loss(scores, mask, *gold, margin)

    register_objective("own", own, **options)
    gold = [np.arange(len(one)) for one in states()] if "supervised" in options else None
    for sub_batch in ("none", *([options["sub_batch"]] if "sub_batch" in options else [])):
        settings = Settings(epochs=20, margin=0.3, sub_batch=sub_batch)
        first, second = (fit_each(states(), name, gold=gold, settings=settings) for name in (packaged, "own"))
        torch.testing.assert_close(first.weights, second.weights, rtol=1e-4, atol=1e-5)
    assert METHODS["own"].family == METHODS[packaged].family
    assert METHODS["own"].directed == METHODS[packaged].directed


def test_the_options_of_a_loss_are_the_options_of_the_method():
    """Keyword-only parameters: numbers from the command line, study settings by their names, defaults otherwise."""
    seen = []

    def loss(scores, mask, *, strength=2.0, margin=0.2):
        seen.append((strength, margin))
        return strength * ((scores - margin).square() * mask).sum(-1)

    method = register_objective("own", loss)
    assert method.options["strength"] == 2.0
    parsed = method.parse_options({"strength": "3", "margin": "0.5"})
    fit_each(states(), "own", settings=settings_of("own", parsed))
    assert seen[-1] == (3.0, 0.5)
    ccrank.rank(["a", "b", "c"], "size", model=tiny_reader(), method="own", options={"strength": 4})
    assert seen[-1] == (4, 0.2)
    with pytest.raises(CcrankError, match="own has no option 'weight'"):
        method.parse_options({"weight": 1})


def test_the_example_is_a_method_of_a_study_that_resumes(tmp_path):
    """From the command line, with seeds, layers, splits and sub-batches; the plugin is stored with the results."""
    model = save_model(tiny_reader().loaded, tmp_path / "model")
    words = [
        "bench", "--plugin", str(EXAMPLE), "--models", str(model), "--datasets", "synthfacts,synthcontext",
        "--methods", "soft-rank,soft-rank@triples,soft-rank:across-tasks,triplet", "--seeds", "2", "--layers", "1,2",
        "-o", "soft-rank.temperature=0.1", "--no-report", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    for _ in range(2):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
    frame = load_results(tmp_path / "out")
    own = frame[frame["method"] == "soft-rank"]
    assert set(own["family"]) == {"probing"}
    assert set(own["split"]) == {"same-task", "across-tasks"}
    assert (set(own["seed"]), set(own["layer"])) == ({0, 1}, {1, 2})
    assert set(frame["method"]) == {"soft-rank", "soft-rank@triples", "triplet"}
    assert (tmp_path / "out" / "plugin-soft_rank.py").read_text() == EXAMPLE.read_text()


def test_soft_ranks_of_a_batch_are_those_of_each_task_alone():
    """The example against a plain loop over the items of one task."""
    load_plugin(EXAMPLE)
    loss = OBJECTIVES["soft-rank"].loss
    assert loss is not None
    scores = torch.rand(3, 5, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(5) < torch.tensor([[5], [3], [4]])
    for row, present, value in zip(scores, mask, loss(scores, mask), strict=True):
        kept = row[present].tolist()
        ranks = sorted(sum(1 / (1 + np.exp(-(one - other) / 0.05)) for other in kept) - 0.5 for one in kept)
        wanted = np.mean([((rank - place) / len(kept)) ** 2 for place, rank in enumerate(ranks)])
        assert float(value) == pytest.approx(wanted, rel=1e-4)
    # Clear differences in any order are a permutation; equal scores are far from one.
    clear, equal = torch.tensor([[0.9, 0.1, 0.5]]), torch.full((1, 3), 0.5)
    whole = torch.ones(1, 3, dtype=torch.bool)
    assert float(loss(clear, whole)) < 1e-3 < 0.05 < float(loss(equal, whole))


def mean_of_all(scores, mask):
    return scores.mean(-1)


@pytest.mark.parametrize(
    ("loss", "options", "message"),
    [
        (mean_of_all, {}, "changes with the length to which it is padded"),
        (lambda scores, mask: scores.sum(), {}, r"one number per task, a tensor \(3, 2\).*returned \(\)"),
        (lambda scores, mask: 0.0, {}, "returned float"),
        (lambda scores, mask: mask.sum(-1).float().expand(3, 2), {}, "does not depend on the scores"),
        (lambda scores, mask: scores.sum(-1) / 0, {}, "NaN or infinite"),
        (lambda scores: scores, {}, "the loss fails on scores"),
        (lambda scores, mask, *, epochs=3: scores, {}, "epochs is a setting of all probes"),
        (lambda scores, mask, *, weight: scores, {}, "weight needs a default"),
        ("no function", {}, "must be a function"),
        (mean_of_all, {"name": "triplet"}, "there is a method 'triplet' already"),
        (mean_of_all, {"name": "triplet", "replace": True}, "there is a method 'triplet' already"),
        (mean_of_all, {"name": "a:b"}, "must have no space, comma"),
        (mean_of_all, {"sub_batch": "pairs", "prompt": "pair"}, "sub_batch=pairs is for"),
    ],
)
def test_a_loss_that_cannot_be_trained_is_refused_before_a_study(loss, options, message):
    """Each fault by name, and nothing is registered."""
    known = set(METHODS)
    with pytest.raises(CcrankError, match=message):
        register_objective(**{"name": "own", "loss": loss, **options})
    assert set(METHODS) == known == {*known, *OBJECTIVES}


def test_a_registered_objective_can_be_replaced_when_asked():
    """As in a notebook's cell; its variants are replaced too."""

    def loss(scores, mask):
        return (scores * mask).sum(-1)

    register_objective("own", loss, sub_batch="pairs")
    with pytest.raises(CcrankError, match="already"):
        register_objective("own", loss)
    register_objective("own", loss, replace=True)
    with pytest.raises(CcrankError, match="suffix with @"):
        MethodSpec.parse("own@pairs")


def test_a_faulty_plugin_is_named_with_its_line(tmp_path):
    """A missing file, another suffix, an exception, and a file that changed meanwhile."""
    with pytest.raises(CcrankError, match="cannot read the plugin"):
        load_plugin(tmp_path / "none.py")
    (tmp_path / "plugin.txt").write_text("")
    with pytest.raises(CcrankError, match=r"must end in \.py"):
        load_plugin(tmp_path / "plugin.txt")
    file = tmp_path / "plugin.py"
    file.write_text("x = 1\nx / 0\n")
    with pytest.raises(CcrankError, match="line 2: ZeroDivisionError"):
        load_plugin(file)
    file.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(CcrankError, match="line 2: SystemExit: 3"):
        load_plugin(file)
    file.write_text("x = 1\n")
    assert load_plugin(file) == load_plugin(str(file))
    file.write_text("x = 2\n")
    with pytest.raises(CcrankError, match="changed since it was loaded"):
        load_plugin(file)


def test_another_plugin_is_another_study(tmp_path, task_file):
    """A folder refuses a study whose plugin has changed, since its results may differ."""
    names = []
    for text in ("", "# changed\n"):
        file = tmp_path / "plugin.py"
        file.write_text(text)
        plugins._loaded.clear()
        study = Study(("m",), (str(task_file),), ("length",), plugins=(str(file),))
        names.append(study.fingerprint()["plugin plugin.py"])
    assert names[0] != names[1]


@pytest.fixture
def task_file(tmp_path):
    from ccrank.io.taskfiles import write_tasks

    path = tmp_path / "tasks.jsonl"
    write_tasks([ccrank.Task(ccrank.Criterion("size"), ("a", "b", "c"), None, (1.0, 2.0, 3.0), "t")], path)
    return path


def test_installed_packages_register_by_an_entry_point(monkeypatch):
    """An unknown method is looked for among the entry points; a broken one is named."""

    def load():
        register_objective("installed", lambda scores, mask: (scores * mask).sum(-1))

    entries = [SimpleNamespace(name="mine", load=load, dist=None, value="package.losses")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == "ccrank.plugins" else [])
    plugins.load_installed_plugins.cache_clear()
    assert get_method("installed").family == "probing"
    entries[0].load = lambda: 1 / 0
    plugins.load_installed_plugins.cache_clear()
    with pytest.raises(
        CcrankError, match=r"plugin 'mine' of the package package\.losses failed: ZeroDivisionError"
    ):
        get_method("installed-too")
    plugins.load_installed_plugins.cache_clear()
