"""The generated sections of details.md: tables from the numbers of a data file. Nothing is computed here
except means over datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from studies.common.sections import fill_sections, section_with_markers
from studies.reproduction import claims, prompting
from studies.reproduction.family import family
from studies.reproduction.tables import (
    LEVEL,
    Data,
    chance_of,
    difference_table,
    label,
    names_of,
    number,
    p_text,
    rows_of,
    signed,
    table,
    tested_of,
    tests_of,
    units_of,
)
from studies.reproduction.verdicts import verdicts


def fill_page(text: str, data: Data) -> str:
    """The page with every generated section made anew."""
    return fill_sections(text, data, SECTIONS)


def section_text(name: str, data: Data) -> str:
    """One section with its markers."""
    return section_with_markers(name, data, SECTIONS)


def setup(data: Data) -> str:
    """What was run on what."""
    about = data["about"]
    versions = ", ".join(
        f"{name} {version}" for name, version in about["versions"].items() if version and name != "ccrank"
    )
    where = ", ".join(about["gpu"] or []) if str(about["device"]).startswith("cuda") else about["device"]
    partial = (
        f"**Made from a part of the data: at most {about['limit']} tasks of each dataset.** The verdicts "
        "below are those of a run on all tasks.\n\n"
        if about["limit"]
        else ""
    )
    lines = [
        [
            f"{one['dataset']} ({one['kind']})",
            str(one["tasks"]),
            number(one["items"]),
            number(one["chance_abs_tau"], 3),
            f"{one['chance_free_accuracy']:.0%}".replace("%", " %"),
        ]
        for one in data["datasets"]
    ]
    parameters = "" if not about["parameters"] else f"{about['parameters'] / 1e6:.0f} million parameters, "
    return (
        f"{partial}Model `{about['model']}`: {parameters}{about['layers']} layers, {about['width']} dimensions, "
        f"{about['dtype']}. {about['seeds']} seeds. {where}; {versions}.\n\n"
        + table(["dataset", "tasks", "mean items", "chance of \\|τ\\|", "chance of accuracy"], lines)
    )


def significant(data: Data) -> str:
    """The sizes of the family by claim, and what survives the correction."""
    tests = family(data)
    found = [test for test in tests if test.holm < LEVEL]
    sizes = []
    for claim in dict.fromkeys(test.claim for test in tests):
        own = [test for test in tests if test.claim == claim]
        counts = len(own), sum(test.p < LEVEL for test in own), sum(test.holm < LEVEL for test in own)
        sizes.append([claim, *map(str, counts)])
    plain = sum(test.p < LEVEL for test in tests)
    sizes.append(["*all*", str(len(tests)), str(plain), str(len(found))])
    lines = [
        [
            test.claim,
            test.comparison,
            test.dataset,
            signed(test.value, 3) if test.is_difference else number(test.value, 3),
            p_text(test.holm),
        ]
        for test in found
    ]
    return (
        f"One family of {len(tests)} tests; {plain} have p < 0.05 on their own, {len(found)} after Holm's "
        f"correction. {data['about'].get('draws', 10_000):,} random signs for each paired test and common "
        "direction.\n\n"
        + table(["claim", "tests", "p < 0.05", "after Holm"], sizes)
        + "\nWhat survives:\n\n"
        + (
            table(["claim", "comparison", "dataset", "difference or value", "Holm"], lines)
            if lines
            else "Nothing.\n"
        )
    )


def power(data: Data) -> str:
    """The differences in |τ| that the tests could have found."""
    tested, lines = tested_of(data), []
    for claim in dict.fromkeys(test["claim"] for test in data["tests"]):
        tests = tests_of(data, claim)
        cells = []
        for name in tested:
            own = [test for test in tests if test["dataset"] == name]
            cells.append(
                f"{median(test['detectable'] for test in own):.3f}, "
                f"{median(test['detectable_corrected'] for test in own):.3f}"
                if own
                else "–"
            )
        lines.append([claim, *cells])
    tasks = {one["dataset"]: one["tasks"] for one in data["datasets"]}
    return table(["median over the claim's tests", *(f"{name} ({tasks[name]})" for name in tested)], lines)


def signed_results(data: Data) -> str:
    rows, lines = rows_of(data), []
    for unit in units_of(data):
        cells = []
        for name in names_of(data):
            row = rows.get((name, unit))
            if row is None:
                cells.append("–")
                continue
            interval = f" [{signed(row['tau_low'])}, {signed(row['tau_high'])}]" if "tau_low" in row else ""
            deviation = f" ± {row['tau_sd']:.2f}" if "tau_sd" in row else ""
            cells.append(signed(row["tau"]) + deviation + interval)
        lines.append([label(unit), *cells])
    tasks = {one["dataset"]: one["tasks"] for one in data["datasets"]}
    return table(["method · split", *(f"{name} ({tasks[name]})" for name in names_of(data))], lines)


def free_results(data: Data) -> str:
    rows, chance, accuracy = rows_of(data), chance_of(data), chance_of(data, "chance_free_accuracy")
    lines = [["*chance*", *(f"{chance[name]:.2f}, {100 * accuracy[name]:.0f} %" for name in names_of(data))]]
    for unit in units_of(data):
        cells = []
        for name in names_of(data):
            row = rows.get((name, unit))
            if row is None:
                cells.append("–")
                continue
            deviation = f" ± {row['abs_tau_sd']:.2f}" if "abs_tau_sd" in row else ""
            cells.append(f"{row['abs_tau']:.2f}{deviation}, {100 * row['free_accuracy']:.0f} %")
        lines.append([label(unit), *cells])
    return table(["method · split", *names_of(data)], lines)


SECTIONS: dict[str, Callable[[Data], str]] = {
    "setup": setup,
    "verdicts": verdicts,
    "significant": significant,
    "probing-and-prompting": claims.probing_and_prompting,
    "best-probe": claims.best_probe,
    "baselines": lambda data: difference_table(data, "baselines"),
    "listwise": claims.listwise,
    "pair-accuracy": claims.pair_accuracy,
    "both-orders": claims.both_orders,
    "volatility": claims.volatility,
    "seeds-agree": claims.seeds_agree,
    "ceilings": claims.ceilings,
    "across": claims.across,
    "common-direction": claims.common_direction,
    "across-supervised": claims.across_supervised,
    "few-tasks": claims.few_tasks,
    "kinds": claims.kinds,
    "initialisation": claims.initialisation,
    "sub-batches": claims.sub_batches,
    "sensitivity": claims.sensitivity,
    "prompting": prompting.prompting,
    "pair-answers": prompting.pair_answers,
    "second-model": claims.second_model,
    "power": power,
    "signed-results": signed_results,
    "free-results": free_results,
}
