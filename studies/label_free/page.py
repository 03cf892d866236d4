"""The generated sections of README.md: tables from the numbers of a data file. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from studies.common.sections import fill_sections
from studies.reproduction.tables import LEVEL, Data, p_text, signed, table

FIRST, SECOND = "default", "gemma-3-270m"
LABELS = {FIRST: "the default model's `auto`"}
EXEMPLARS = "auto-exemplars"
NAMES = {EXEMPLARS: "`auto` with exemplars", "auto-plain": "`auto`, `-o anchor=no`"}
HALVES = {"everyday": ("choose", "report"), "unseen": ("first", "second"), "entsalience": ("even", "odd")}
SIGNALS = ("auto", "poles", "likelihood", "axis")


def fill_page(text: str, data: Data) -> str:
    """The page with every generated section made anew."""
    return fill_sections(text, data, SECTIONS)


def setup(data: Data) -> str:
    """What was run on what."""
    lines = [
        [
            f"`{one['model']}`, {one['dtype']}",
            ", ".join(one["datasets"]),
            one["device"],
            ", ".join(
                f"{name} {version}"
                for name, version in one["versions"].items()
                if version and name != "ccrank"
            ),
        ]
        for one in data["about"]
    ]
    return table(["model", "datasets", "on", "versions"], lines)


def kind_of(test: Mapping[str, Any]) -> str:
    """What a test is about."""
    against = test["against"]
    if against == EXEMPLARS:
        return "`auto` with exemplars against `auto`"
    if against == FIRST:
        return "`auto` of the second model against that of the default"
    if against.startswith("|"):
        return "`auto` against the better direction of others"
    if against in SIGNALS:
        return "`auto` against its signals"
    return "`auto` against prompts, probes and baselines, signed"


def family_counts(data: Data) -> str:
    """How many tests the page has, how many of each kind survive the correction, and on which datasets."""
    total, raw, kept = counts(data["tests"])
    datasets = list(dict.fromkeys(row["dataset"] for row in data["rows"]))
    lines, where = [], []
    for model, kind in dict.fromkeys((one["model"], kind_of(one)) for one in data["tests"]):
        own = [one for one in data["tests"] if one["model"] == model and kind_of(one) == kind]
        lines.append([f"`{model}`", kind, *map(str, counts(own))])
        parts = {name: counts([one for one in own if one["dataset"] == name]) for name in datasets}
        where.append(
            [
                f"`{model}`",
                kind,
                *(f"{found[2]} of {found[0]}" if found[0] else "–" for found in parts.values()),
            ]
        )
    lines.append(["", "*all*", str(total), str(raw), str(kept)])
    return (
        f"One family of {total} tests, those of the second model among them; {raw} have p < 0.05 on their own, {kept} "
        "after Holm's correction.\n\n"
        + table(["model", "tests", "number", "p < 0.05", "after Holm"], lines)
        + "\nHow many survive on each dataset:\n\n"
        + table(["model", "tests", *datasets], where)
    )


def counts(tests: Sequence[Mapping[str, Any]]) -> tuple[int, int, int]:
    """All, those below the level on their own, and those that survive the correction."""
    return len(tests), sum(one["p"] < LEVEL for one in tests), sum(one["holm"] < LEVEL for one in tests)


def results(data: Data) -> str:
    """The default model's signed τ on every dataset."""
    return results_of(data, FIRST)


def second_results(data: Data) -> str:
    """The second model's signed τ, with the default model's below."""
    first = {(row["dataset"], row["method"]): row for row in data["rows"] if row["model"] == FIRST}
    rows = {(row["dataset"], row["method"]): row for row in data["rows"] if row["model"] == SECOND}
    methods = list(dict.fromkeys(method for _, method in rows))
    lines = []
    for dataset in dict.fromkeys(dataset for dataset, _ in rows):
        tasks = max(row["tasks"] for (name, _), row in rows.items() if name == dataset)
        lines.append([f"{dataset} ({tasks})", *(cell(rows.get((dataset, one))) for one in methods)])
        whole = [first.get((dataset, one)) for one in methods]
        others = [f"{signed(one['tau'], 3)}" if one else "–" for one in whole]
        known = max((one["tasks"] for one in whole if one), default=0)
        lines.append([f"default ({known})", *others])
    return table(["signed τ [95 %]", *(f"`{one}`" for one in methods)], lines)


def results_of(data: Data, model: str) -> str:
    """Signed τ of one model: a row for each method, a column for each dataset."""
    rows = {(row["dataset"], row["method"]): row for row in data["rows"] if row["model"] == model}
    datasets = list(dict.fromkeys(dataset for dataset, _ in rows))
    tasks = {name: max(row["tasks"] for (one, _), row in rows.items() if one == name) for name in datasets}
    lines = [
        [f"`{method}`", *(cell(rows.get((name, method))) for name in datasets)]
        for method in dict.fromkeys(method for _, method in rows)
        if method not in NAMES
    ]
    return table(["method", *(f"{name} ({tasks[name]})" for name in datasets)], lines)


def cell(row: Mapping[str, Any] | None) -> str:
    """A mean with its interval."""
    if row is None:
        return "–"
    return f"{signed(row['tau'], 3)} [{signed(row['low'])}, {signed(row['high'])}]"


def tests(data: Data) -> str:
    """The default model's paired tests."""
    return tests_of(data, FIRST)


def second_tests(data: Data) -> str:
    """The second model's paired tests."""
    return tests_of(data, SECOND)


def tests_of(data: Data, model: str) -> str:
    """Differences with p and Holm's p; bold where they survive the correction."""
    found = {(one["against"], one["dataset"]): one for one in data["tests"] if one["model"] == model}
    datasets = list(dict.fromkeys(dataset for _, dataset in found))
    lines = []
    for other in dict.fromkeys(against for against, _ in found if against != EXEMPLARS):
        cells = [test_cell(found.get((other, name))) for name in datasets]
        lines.append([side(other), *cells])
    return table(["`auto` less (p; Holm)", *datasets], lines)


def side(against: str) -> str:
    """What `auto` is compared with."""
    if against in LABELS:
        return LABELS[against]
    name = against.strip("|")
    return f"`{name}`, its \\|τ\\|" if against != name else f"`{name}`"


def test_cell(test: Mapping[str, Any] | None) -> str:
    """A difference with both p-values; bold if it survives the correction."""
    if test is None:
        return "–"
    text = f"{signed(test['difference'])} ({p_text(test['p'])}; {p_text(test['holm'])})"
    return f"**{text}**" if test["holm"] < LEVEL else text


def halves(data: Data) -> str:
    """The default model's signed τ on the halves that took part in choices and on those that did not."""
    found = {
        (row["method"], row["dataset"], row["half"]): row for row in data["halves"] if row["model"] == FIRST
    }
    columns = [(name, half) for name, parts in HALVES.items() for half in parts]
    methods = ("auto", *NAMES, *SIGNALS[1:])
    lines = [
        [NAMES.get(one, f"`{one}`"), *(cell(found.get((one, *column))) for column in columns)]
        for one in methods
    ]
    return table(["", *(f"{name} {half}" for name, half in columns)], lines)


def exemplars(data: Data) -> str:
    """What exemplars change where both sides were run on the same machine."""
    rows = {(row["dataset"], row["method"]): row for row in data["rows"] if row["model"] == FIRST}
    lines = [
        [
            f"{one['dataset']} ({one['tasks']})",
            *(signed(rows[one["dataset"], method]["tau"], 3) for method in ("auto", EXEMPLARS)),
            test_cell(one),
        ]
        for one in data["tests"]
        if one["against"] == EXEMPLARS
    ]
    return table(["data", "without", "with", "difference (p; Holm)"], lines)


SECTIONS: dict[str, Callable[[Data], str]] = {
    "exemplars": exemplars,
    "setup": setup,
    "results": results,
    "family": family_counts,
    "tests": tests,
    "halves": halves,
    "second-results": second_results,
    "second-tests": second_tests,
}
