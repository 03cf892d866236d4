"""The sentences of studies/reproduction/README.md that are written by hand have the numbers of its data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.reproduction import numbers as script
from studies.reproduction import tables, verdicts

FOUR = tables.FOUR
PROBES = ("ccs", "margin", "triplet", "ordreg")


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    found: dict[str, Any] = script.load_data(script.DATA)
    return found


@pytest.fixture(scope="module")
def prose() -> str:
    """The page on one line, so that sentences can be found."""
    return " ".join(script.PAGE.read_text(encoding="utf-8").split())


def between(values: Iterable[float], form: Callable[[float], str] = tables.number, word: str = "to") -> str:
    """The smallest and the largest in size, as the sentences have them."""
    found = sorted(values, key=abs)
    return f"{form(found[0])} {word} {form(found[-1])}"


def percent(value: float) -> str:
    return f"{100 * value:.0f}"


def test_the_verdicts_of_the_page_are_those_of_the_rule(data: dict[str, Any]) -> None:
    """Each claim of the first table begins with the verdict that the rule gives, and the rule judges all claims."""
    text = script.PAGE.with_name("README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*) \| .*? \|$", text, re.MULTILINE)
    shown = {claim: said for claim, said in rows if claim in verdicts.CLAIMS}
    assert list(shown) == list(verdicts.CLAIMS)
    for claim, judged_by in verdicts.CLAIMS.items():
        wanted = verdicts.verdict(judged_by(data))
        assert shown[claim].startswith(f"**{wanted}**"), (claim, wanted)
    found = Counter(
        verdicts.verdict(judged_by(data))
        for claim, judged_by in verdicts.CLAIMS.items()
        if not claim.startswith("*not in the paper")
    )
    tested = sum(found.values()) - found["cannot be tested"]
    counts = f"Of the {tested} claims that can be tested with SmolLM2-135M, {found['holds']} hold, "
    counts += f"{found['holds in part']} hold in part, {found['contradicted']} are contradicted and "
    assert f"{counts}{found['not shown']} are not shown" in " ".join(text.split())


@given(
    st.lists(
        st.builds(
            verdicts.Finding,
            st.floats(-1, 1),
            st.none() | st.floats(0, 1),
            st.none() | st.floats(-1, 1),
            st.none() | st.floats(0, 1),
        ),
        max_size=6,
    )
)
def test_the_rule(findings: list[Any]) -> None:
    """A claim holds only if every finding supports it, and is contradicted only if none does; a significant difference
    in the claimed direction never speaks against it; turning all signs around never keeps a verdict for or against."""
    found = verdicts.verdict(findings)
    sides = [one.side for one in findings]
    assert (found == "cannot be tested") == (not findings)
    assert (found == "holds") == (bool(findings) and set(sides) == {"support"})
    assert ("support" in sides) == (found in ("holds", "holds in part"))
    for one in findings:
        if one.side in ("support", "oppose"):
            assert (one.effect > 0) == (one.side == "support")
            assert one.holm < 0.05 if one.holm is not None else abs(one.effect) >= verdicts.RELEVANT
    turned = verdicts.verdict([replace(one, effect=-one.effect) for one in findings])
    assert not (found == turned == "holds")
    if found == "contradicted" and "excluded" not in sides:
        assert turned in ("holds", "holds in part")


def test_numbers_about_prompting(data: dict[str, Any], prose: str) -> None:
    """Gaps, calibration, triads, letters, directions and wordings are those of claims_prompting.json."""
    claims = [data["claims_prompting"]["datasets"][name] for name in FOUR]
    pairs = [one["pairs"]["prompt-pair"] for one in claims]
    gap, by_chance = (between(one[name] for one in pairs) for name in ("gap", "gap_permuted"))
    assert f"`prompt-pair` are {gap} less accurate than the final order on the four" in prose
    assert f"the same answers against a random gold order are {by_chance} less" in prose
    answers = {
        name: between((one["calibration"][name]["yes"] for one in claims), percent)
        for name in ("none", "task")
    }
    assert f"without it {answers['none']} % of the answers are *Yes* on the four" in prose
    assert f"with it {answers['task']} %" in prose
    changes = [
        one["calibration"][name]["abs_tau"] - one["calibration"]["none"]["abs_tau"]
        for one in claims
        for name in ("task", "dataset")
    ]
    low, high = tables.signed(min(changes)), tables.signed(max(changes))
    assert f"\\|τ\\| changes by {low} to {high}, and no change survives the correction" in prose
    assert all(one["calibration"][name]["holm"] >= 0.05 for one in claims for name in ("task", "dataset"))
    triads = [one["transitivity"]["prompt-pair"] for one in claims]
    single, net = (between((one[name] for one in triads), percent) for name in ("share_single", "share_net"))
    assert f"({single} % of triads are circular; chance is 25 %)" in prose
    assert f"hardly for both orders together ({net} %)" in prose
    letters = between((one["lists"]["prompt-list"]["labels"] for one in claims), tables.signed)
    assert f"order of the letters is {letters}" in prose
    turned = between((one["direction"]["both"]["agree"] for one in claims), tables.signed)
    assert f"rankings are reversed (τ {turned} on the four)" in prose
    for method, name in (
        ("prompt-pair", "`prompt-pair`"),
        ("triplet", "`triplet`"),
        ("random", "a random direction"),
        ("pca", "`pca`"),
    ):
        assert f"{between(one['wordings'][method]['between'] for one in claims)} ({name})" in prose


def test_numbers_about_probes(data: dict[str, Any], prose: str) -> None:
    """Common directions, reviews under letters and settings are those of the study and of sensitivity.json."""
    rows = tables.rows_of(data)
    own = [rows["entsalience", f"{name}:across-tasks"] for name in PROBES]
    others = {name: rows["entsalience", f"{name}:across-tasks"] for name in ("ccs-pair", "random")}
    chance = between(one["common_tau_chance"] for one in (*own, *others.values()))
    assert (
        f"a fold {between(one['common_tau'] for one in own)}, `ccs-pair` {others['ccs-pair']['common_tau']:.2f}; "
        f"by chance {chance}, a random direction {others['random']['common_tau']:.2f})"
    ) in prose
    letters = {unit: row for (name, unit), row in rows.items() if name == "reviews-letters"}
    free = [
        row["abs_tau"]
        for unit, row in letters.items()
        if row["family"] in ("prompting", "probing", "baseline") and unit != "length"
    ]
    assert (
        f"near chance in |τ| ({between(free)}, chance {tables.chance_of(data)['reviews-letters']:.2f};"
        in prose
    )
    across = [f"sup-{name}:across-tasks" for name in ("ccs-pair", *PROBES)]
    most = max(letters[unit]["tau"] for unit in across)
    poles = letters["poles"]["tau"]
    assert f"a signed τ of at most {most:+.2f}, and `poles` has {poles:+.2f}, the most of all" in prose
    assert poles == max(row["tau"] for unit, row in letters.items() if not unit.endswith(":same-task"))
    reached = max(rows["reviews", unit]["tau"] for unit in across)
    assert f"reach up to {reached:+.2f} and `poles` {rows['reviews', 'poles']['tau']:+.2f}" in prose

    points = data["sensitivity"]["points"]

    def reached_with(probe: str, setting: str, value: float) -> float:
        found = [
            one["abs_tau"]
            for one in points
            if (one["probe"], one["setting"], one["value"]) == (probe, setting, value)
        ]
        assert len(found) == len(FOUR)
        return fmean(found)

    large, small = (
        between(reached_with(name, "learning_rate", rate) for name in PROBES) for rate in (1.0, 0.001)
    )
    assert f"`ordreg` reach {large} ({small} at 0.001)" in prose
    for setting, value in (("margin", 0.8), ("initial", 1.0)):
        reached = [f"{reached_with(name, setting, value):.2f}" for name in ("margin", "triplet")]
        assert f"`margin` and `triplet` {' and '.join(reached)}" in prose
    more = max(
        abs(reached_with(name, "epochs", 1000) - reached_with(name, "epochs", 200))
        for name in ("ccs-pair", *PROBES)
    )
    assert f"More epochs change \\|τ\\| by at most {more:.2f}" in prose
    assert f"`pca` has without training ({tables.mean_of(data, 'pca'):.3f} on the four)" in prose
