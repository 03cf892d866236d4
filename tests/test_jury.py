"""Several models as one judge: the mean of their scores, and less certainty where they disagree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny import save_model, tiny_model, tiny_reader

import ccrank
from ccrank.cli.commands.rank_output import consistency_line
from ccrank.errors import CcrankError
from ccrank.io import rows_of_items
from ccrank.jury import Verdict, combined, joined, members_of, weights_by_size
from ccrank.methods.registry import METHODS
from ccrank.ranking import Ranking
from ccrank.request import RankRequest
from ccrank.scale.stored import model_to_open
from ccrank.util.zscores import z_scores

ITEMS = ("ant", "cat", "horse", "whale", "mouse", "eagle")
HALF = np.array([0.5, 0.5])


def ranking(family: str = "llama", **more) -> Ranking:
    return ccrank.rank(ITEMS, "size", category="animal", model=tiny_reader(family), **more)


def reversed_ranking(one: Ranking) -> Ranking:
    return replace(one, scores=-one.scores, model="reversed")


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.8, 0.2)])
def test_scores_are_the_weighted_mean_of_z_scores(weights) -> None:
    """A scale of its own gives a model no more say than its weight."""
    one, other = ranking(), ranking("gpt2")
    loud = replace(other, scores=1000 * other.scores + 7)
    found = joined([one, loud], np.array(weights))
    expected = z_scores(weights[0] * z_scores(one.scores) + weights[1] * z_scores(other.scores))
    np.testing.assert_allclose(found.scores, expected, atol=1e-9)
    assert found.model == f"{one.model},{other.model}"
    assert found.cost == one.cost + other.cost
    assert found.details["jury"]["weights"] == {one.model: weights[0], other.model: weights[1]}


def test_a_model_agrees_with_itself() -> None:
    """Its order and its confidence are what they were."""
    one = ranking()
    found = joined([one, replace(one, model="again")], HALF)
    assert found.items == one.items
    assert found.consistency["models_agree"] == pytest.approx(1)
    assert found.confidence is not None
    assert one.confidence is not None
    assert found.confidence.probability == pytest.approx(one.confidence.probability)


def test_a_model_under_two_names_is_refused() -> None:
    """Else it would count twice, and agree with itself."""
    one = Verdict([ranking()], 5)
    with pytest.raises(CcrankError, match="two models of the jury are both"):
        combined([one, one])


def test_disagreement_lowers_the_confidence() -> None:
    """Two models with opposite orders cancel, and the warning of a low confidence is given once."""
    one = ranking()
    found = joined([one, reversed_ranking(one)], HALF)
    np.testing.assert_allclose(found.scores, 0, atol=1e-9)
    assert found.confidence is not None
    assert one.confidence is not None
    assert found.confidence.probability < one.confidence.probability
    assert found.confidence.level == "low"
    assert sum("the confidence is low" in text for text in found.warnings) == 1


def test_disagreement_widens_intervals() -> None:
    """With labels, intervals hold the ranks, and are wider where the models differ."""
    one = ranking(labels={"ant": 1, "whale": 5, "cat": 2})
    same = joined([one, replace(one, model="again")], HALF).uncertainty
    apart = joined([one, reversed_ranking(one)], HALF)
    assert same is not None
    assert apart.uncertainty is not None
    width = [(doubt.rank_high - doubt.rank_low).mean() for doubt in (same, apart.uncertainty)]
    assert width[1] > width[0]
    ranks = {entry.index: entry.rank for entry in apart.entries()}
    assert all(
        apart.uncertainty.rank_low[index] <= rank <= apart.uncertainty.rank_high[index]
        for index, rank in ranks.items()
    )


def test_larger_models_weigh_more() -> None:
    """By the square root of their size; equally if one size is unknown."""
    np.testing.assert_allclose(weights_by_size([4_000, 1_000]), [2 / 3, 1 / 3])
    np.testing.assert_allclose(weights_by_size([4_000, None, 1]), [1 / 3] * 3)


DIRECTED = [
    name
    for name, method in METHODS.items()
    if method.directed and method.family != "supervised" and name not in ("probe", "first-stage")
]


@pytest.mark.parametrize("method", DIRECTED)
def test_every_method_with_a_direction_can_have_a_jury(method: str) -> None:
    """The jury's ranking is described like that of one model, and written as JSON."""
    asked = {"query": "a large animal"} if method == "query-likelihood" else {"by": "size"}
    request = RankRequest(items=rows_of_items(ITEMS), method=method, **asked)
    verdicts = [Verdict.of(request.run(reader), reader) for reader in map(tiny_reader, ("llama", "gpt2"))]
    [found] = combined(verdicts)
    assert sorted(found.items) == sorted(ITEMS)
    assert found.model in consistency_line(found)
    assert json.loads(json.dumps(found.to_json()))["details"]["jury"]


def test_a_jury_needs_a_direction() -> None:
    """Orders that may be reversed cannot be averaged."""
    one = replace(ranking(), directed=False)
    with pytest.raises(CcrankError, match="does not know the direction"):
        joined([one, one], HALF)


def test_names(tmp_path: Path) -> None:
    """Names have commas between them; a folder may have one in its own."""
    assert members_of("a, b,c") == ("a", "b", "c")
    (tmp_path / "x,y").mkdir()
    assert members_of(str(tmp_path / "x,y")) == (str(tmp_path / "x,y"),)
    for wrong in ("a,,b", "a,a", ",".join(map(str, range(9)))):
        with pytest.raises(CcrankError, match="a jury is up to 8 different models"):
            members_of(wrong)


def test_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--model A,B` and `model="A,B"` give the jury of both."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    folders = [
        str(save_model(tiny_model(family, max_position_embeddings=512), tmp_path / family))
        for family in ("llama", "gpt2")
    ]
    found = ccrank.rank(ITEMS, "size", model=",".join(folders))
    alone = [ccrank.rank(ITEMS, "size", model=folder) for folder in folders]
    weights = [found.details["jury"]["weights"][one.model] for one in alone]
    np.testing.assert_allclose(found.scores, joined(alone, np.array(weights)).scores, atol=1e-3)
    from typer.testing import CliRunner

    from ccrank.cli.commands import app

    done = CliRunner().invoke(app, ["rank", *ITEMS, "--by", "size", "--model", ",".join(folders), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["model"] == found.model
    assert [row["item"] for row in shown["items"]] == list(found.items)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two models on disk."""
    monkeypatch.setenv("CCRANK_CACHE", str(tmp_path / "cache"))
    return [
        str(save_model(tiny_model(family, max_position_embeddings=512), tmp_path / family))
        for family in ("llama", "gpt2")
    ]


def test_the_scale_of_a_jury(folders: list[str], tmp_path: Path) -> None:
    """It ranks its own items as the jury does, scores others by the weighted mean of the members' scales in the units
    of the list, and its file scores alike."""
    name = ",".join(folders)
    scale = ccrank.fit(ITEMS, "size", model=name)
    np.testing.assert_array_equal(scale.rank(ITEMS).scores, ccrank.rank(ITEMS, "size", model=name).scores)
    alone = [ccrank.fit(ITEMS, "size", model=folder) for folder in folders]
    new = ["dog", "ant", "shark"]
    table = np.stack([one(ITEMS) for one in alone])
    units = [(one(new) - row.mean()) / row.std() for one, row in zip(alone, table, strict=True)]
    mean = np.array(scale.weights) @ z_scores(table)
    expected = (np.array(scale.weights) @ np.stack(units) - mean.mean()) / mean.std()
    np.testing.assert_allclose(scale(new), expected, atol=1e-3)
    scale.save(tmp_path / "size.scale")
    again = ccrank.Scale.load(tmp_path / "size.scale")
    np.testing.assert_allclose(again.with_reader(*(one.open() for one in scale.members))(new), scale(new))
    with pytest.raises(CcrankError, match="the scale needs 2 open models"):
        again.with_reader(scale.members[0].open())
    np.testing.assert_allclose(again(new), scale(new), atol=1e-3)


def test_the_scale_of_a_jury_on_the_command_line(folders: list[str], tmp_path: Path) -> None:
    """`fit` and `score` give the numbers of Python; --input is refused."""
    from typer.testing import CliRunner

    from ccrank.cli.commands import app

    (tmp_path / "items.txt").write_text("\n".join(ITEMS), encoding="utf-8")
    model = ["--model", ",".join(folders)]
    file, out = str(tmp_path / "items.txt"), str(tmp_path / "size.scale")
    done = CliRunner().invoke(app, ["fit", file, "--by", "size", "--out", out, *model])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["score", "--scale", out, "--json", "dog", "ant"])
    assert done.exit_code == 0, done.output
    scores = [json.loads(line)["score"] for line in done.stdout.splitlines()]
    np.testing.assert_allclose(scores, ccrank.Scale.load(out)(["dog", "ant"]), atol=1e-3)
    done = CliRunner().invoke(app, ["rank", "--scale", out, "--json", "dog", "ant"])
    assert json.loads(done.stdout)["items"][0]["item"] == ("dog" if scores[0] > scores[1] else "ant")
    parquet = str(tmp_path / "x.parquet")
    done = CliRunner().invoke(app, ["score", "--scale", out, "--input", file, "--out", parquet])
    assert "this scale has several" in str(done.exception)


def test_a_file_names_no_server(folders: list[str]) -> None:
    """A jury in a file, one member of which is behind a server, is opened by nobody."""
    scale = ccrank.fit(ITEMS, "size", model=",".join(folders))
    for name in (f"{folders[0]},openai:http://127.0.0.1:1/v1", f"{folders[0]}, openai:http://127.0.0.1:1/v1"):
        with pytest.raises(CcrankError, match="a model behind a server"):
            model_to_open(replace(scale.notes, model=name))


def test_members_that_do_not_fit_are_refused(folders: list[str]) -> None:
    """Weights without members, members of members, and members on other items."""
    saved = ccrank.fit(ITEMS, "size", model=",".join(folders))._saved
    other = ccrank.fit(ITEMS[:4], "size", model=folders[0])._saved
    for changed in (
        {"weights": (1.0,)},
        {"weights": (2.0, -1.0)},
        {"members": (saved, saved)},
        {"members": (other, other)},
    ):
        with pytest.raises(ValueError, match="do not fit"):
            replace(saved, **changed)
