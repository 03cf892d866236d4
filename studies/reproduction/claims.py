"""The generated sections of details.md about single claims: a function for each, from data to Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from studies.reproduction.tables import (
    FOUR,
    LEVEL,
    Data,
    chance_of,
    difference_table,
    free_table,
    holm_text,
    kinds_of,
    label,
    mean_of,
    names_of,
    number,
    p_text,
    rows_of,
    signed,
    spread_cell,
    table,
    tested_of,
    tests_of,
    units_of,
)

PROMPTS = ("prompt-pair", "prompt-point", "prompt-list")
MODELS = ("SmolLM2-135M", "Gemma-3-270M")
"""The default model and the second one, as studies/sizes/sizes.csv names them."""
PROBES = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")


def probing_and_prompting(data: Data) -> str:
    units = [
        *PROMPTS,
        "prompt-list:single",
        *(f"{name}:same-task" for name in PROBES),
        "random",
        "pca",
        "auto",
    ]
    return free_table(data, units) + "\n" + difference_table(data, "probing and prompting")


def best_probe(data: Data) -> str:
    """Means over the paper's two kinds of datasets, and tests of triplet against the others."""
    groups, lines = kinds_of(data), []
    for name in PROBES:
        means = [mean_of(data, f"{name}:same-task", datasets=own) for own in groups.values()]
        lines.append([f"`{name}`", *(number(one, 3) for one in (*means, mean_of(data, f"{name}:same-task")))])
    heads = [f"{kind} ({', '.join(own)})" for kind, own in groups.items()]
    return (
        table(["mean \\|τ\\|", *heads, "the four"], lines) + "\n" + difference_table(data, "the best probe")
    )


def listwise(data: Data) -> str:
    return (
        free_table(data, [*PROMPTS, "prompt-list:single"])
        + "\n"
        + difference_table(data, "listwise prompting")
    )


def pair_accuracy(data: Data) -> str:
    """Accuracy of single answers beside that of the final order."""
    lines = []
    for row in data["rows"]:
        if "free_pair_accuracy" in row and row["dataset"] in tested_of(data):
            cells = [row["free_pair_accuracy"], row.get("chance_free_pair_accuracy"), row["free_accuracy"]]
            gap = row["free_accuracy"] - row["free_pair_accuracy"]
            lines.append(
                [row["dataset"], label(row["unit"]), *(number(one, 3) for one in cells), signed(gap, 3)]
            )
    if not lines:
        return "The study has no accuracies of single answers.\n"
    return table(["dataset", "method", "single answers", "chance (coins)", "final order", "gap"], lines)


def consistency_table(data: Data, units: Sequence[str], digits: int = 2) -> str:
    rows, tested = rows_of(data), tested_of(data)
    lines = [
        [
            label(unit),
            *(number(rows.get((name, unit), {}).get("consistency"), digits) for name in names_of(data)),
        ]
        for unit in units
        if any("consistency" in rows.get((name, unit), {}) for name in tested)
    ]
    return table(["", *names_of(data)], lines) if lines else "Not in this study.\n"


def both_orders(data: Data) -> str:
    """Yes to one question and No to the other, and the rest: the same word twice."""
    rows = rows_of(data)
    winner = [rows.get((name, "prompt-pair"), {}).get("consistency") for name in names_of(data)]
    word = [None if one is None else 1 - one for one in winner]
    lines = [
        [head, *map(number, own)] for head, own in (("the same winner", winner), ("the same word", word))
    ]
    return table(["`prompt-pair`", *names_of(data)], lines)


def volatility(data: Data) -> str:
    return consistency_table(data, ["prompt-list"])


def seeds_agree(data: Data) -> str:
    units = [
        *(f"{name}:same-task" for name in PROBES),
        "triplet@triples:same-task",
        "margin@pairs:same-task",
        "random",
    ]
    return consistency_table(data, units)


def ceilings(data: Data) -> str:
    rows, lines = rows_of(data), []
    for name in PROBES:
        for split in ("same-task", "leave-one-out"):
            unit = f"sup-{name}:{split}"
            if unit in units_of(data):
                cells = [signed(rows.get((dataset, unit), {}).get("tau")) for dataset in names_of(data)]
                lines.append([label(unit), *cells])
    return table(["τ", *names_of(data)], lines) if lines else "Not in this study.\n"


def common_direction(data: Data) -> str:
    """|mean τ| per fold, its expectation under random directions, and p."""
    rows, tested, lines = rows_of(data), tested_of(data), []
    for unit in units_of(data):
        if unit.endswith(":across-tasks"):
            cells = []
            for name in tested:
                row = rows.get((name, unit), {})
                if "common_tau" not in row:
                    cells.append("–")
                    continue
                text = (
                    f"{spread_cell(row, 'common_tau', number)} / {row['common_tau_chance']:.3f} "
                    f"({p_text(row['common_tau_p'])}; {p_text(row['common_tau_holm'])})"
                )
                cells.append(f"**{text}**" if row["common_tau_holm"] < LEVEL else text)
            lines.append([label(unit), *cells])
    return table(["value / by chance (p; Holm)", *tested], lines) if lines else "Not in this study.\n"


def across(data: Data) -> str:
    units = [f"{name}:across-tasks" for name in (*PROBES, "random", "pca")]
    return free_table(data, units) + "\n" + difference_table(data, "across tasks")


def across_supervised(data: Data) -> str:
    tested, rows, chance, lines = tested_of(data), rows_of(data), chance_of(data), []
    for name in (*PROBES, *(f"sup-{one}" for one in PROBES)):
        unit = f"{name}:across-tasks"
        found = [rows.get((dataset, unit), {}) for dataset in tested]
        if any(found):
            cells = [f"{signed(one.get('tau'))} / {number(one.get('abs_tau'))}" for one in found]
            lines.append([f"`{name}`", *cells])
    lines.insert(0, ["*chance*", *(f"0 / {chance[name]:.2f}" for name in tested)])
    return (
        table(["across tasks: τ / \\|τ\\|", *tested], lines)
        + "\n"
        + difference_table(data, "supervised across tasks")
    )


def few_tasks(data: Data) -> str:
    tasks = {one["dataset"]: one["tasks"] for one in data["datasets"]}
    tests = [
        test for test in tests_of(data, "supervised across tasks") if test["second"].startswith("sup-ordreg")
    ]
    wanted = [test for test in tests if test["first"].startswith("triplet")]
    lines = [
        [
            str(tasks[one["dataset"]]),
            one["dataset"],
            signed(-one["difference"], 3),
            p_text(one["p"]),
            holm_text(one),
        ]
        for one in sorted(wanted, key=lambda one: tasks[one["dataset"]])
    ]
    head = ["tasks", "dataset", "`sup-ordreg` − `triplet`, \\|τ\\|", "p", "Holm"]
    return table(head, lines) if lines else "Not in this study.\n"


def kinds(data: Data) -> str:
    """|τ| above chance, mean over the datasets of each kind."""
    chance, rows, groups = chance_of(data), rows_of(data), kinds_of(data)
    lines = []
    for unit in (*PROMPTS, *(f"{name}:same-task" for name in PROBES), "random", "pca", "auto"):
        cells = []
        for own in groups.values():
            found = [rows.get((name, unit), {}).get("abs_tau") for name in own]
            known = [
                value - chance[name] for value, name in zip(found, own, strict=True) if value is not None
            ]
            cells.append(signed(fmean(known), 3) if len(known) == len(own) else "–")
        if unit in units_of(data):
            lines.append([label(unit), *cells])
    heads = [f"{kind} ({', '.join(own)})" for kind, own in groups.items()]
    return table(["\\|τ\\| − chance", *heads], lines)


def initialisation(data: Data) -> str:
    tested = tested_of(data)
    found = {(one["dataset"], one["unit"]): one for one in data["initialisation"]}
    lines = [
        [
            label(unit),
            *(
                f"{number(found[name, unit]['correlation'])}, {100 * found[name, unit]['same']:.0f} %"
                if (name, unit) in found
                else "–"
                for name in tested
            ),
        ]
        for unit in dict.fromkeys(one["unit"] for one in data["initialisation"])
    ]
    return table(["correlation, share with the same τ", *tested], lines) if lines else "Not in this study.\n"


def sub_batches(data: Data) -> str:
    units = [one for one in units_of(data) if "@pairs" in one or "@triples" in one]
    whole = [f"{one.partition('@')[0]}:same-task" for one in units]
    tested = tested_of(data)
    agree = {(one["dataset"], one["unit"]): one["tau"] for one in data["sub_batches"]}
    lines = [[label(unit), *(number(agree.get((name, unit))) for name in tested)] for unit in units]
    if not units:
        return "Not in this study.\n"
    return "\n".join(
        [
            free_table(data, [unit for pair in zip(whole, units, strict=True) for unit in pair]),
            difference_table(data, "sub-batches"),
            table(["τ between the rankings of both", *tested], lines),
        ]
    )


def sensitivity(data: Data) -> str:
    """For each probe and setting: lowest and highest |τ|, mean over datasets."""
    stored = data.get("sensitivity")
    if stored is None:
        return "Not measured yet: run `python -m studies.reproduction.sensitivity`.\n"
    points, lines = stored["points"], []
    measured = {point["setting"] for point in points}
    settings = [
        name for name in ("epochs", "learning_rate", "margin", "initial", "layer") if name in measured
    ]
    datasets = list(stored["chance"])
    for probe in dict.fromkeys(point["probe"] for point in points):
        cells = []
        for setting in settings:
            own = [
                [point["abs_tau"] for point in points if _is(point, name, probe, setting)]
                for name in datasets
            ]
            cells.append(f"{fmean(map(min, own)):.3f} – {fmean(map(max, own)):.3f}" if all(own) else "–")
        lines.append([f"`{probe}`", *cells])
    values = {
        setting: sorted({point["value"] for point in points if point["setting"] == setting})
        for setting in settings
    }
    heads = [
        f"{name.replace('_', ' ')}: {', '.join(f'{one:g}' for one in values[name])}"
        if name != "initial"
        else "initial: uniform, pca"
        for name in settings
    ]
    limited = f", at most {stored['limit']} tasks of each dataset" if stored["limit"] else ""
    return (
        f"Mean over {', '.join(datasets)} of the lowest and of the highest \\|τ\\| over the values; "
        f"{stored['seeds']} seeds{limited}; chance {fmean(stored['chance'].values()):.3f}; "
        f"{stored['seconds']:.0f} s on {stored['device']}.\n\n" + table(["", *heads], lines)
    )


def _is(point: Mapping[str, Any], dataset: str, probe: str, setting: str) -> bool:
    return (point["dataset"], point["probe"], point["setting"]) == (dataset, probe, setting)


def second_model(data: Data) -> str:
    """Gemma beside the default model, in the study of sizes (studies/sizes/sizes.py)."""
    cells = {(one.model, one.dataset, one.method, one.split): one for one in data["sizes"]}

    def values(dataset: str, unit: str, value: str) -> list[float]:
        method, _, split = unit.partition(":")
        return [getattr(cells[model, dataset, method, split or "none"], value) for model in MODELS]

    def lines(units: Sequence[str], value: str, form: Callable[[float], str]) -> list[list[str]]:
        found = []
        for unit in units:
            by_dataset = [values(name, unit, value) for name in FOUR]
            means = [fmean(column) for column in zip(*by_dataset, strict=True)]
            found.append([label(unit), *(" / ".join(map(form, one)) for one in (*by_dataset, means))])
        return found

    tasks = {name: cells[MODELS[0], name, "pca", "none"].tasks for name in FOUR}
    chance = [cells[MODELS[0], name, "pca", "none"].chance for name in FOUR]
    heads = [*(f"{name} ({tasks[name]})" for name in FOUR), "mean of the four"]
    free = [*PROMPTS, *(f"{name}:same-task" for name in PROBES), "random", "pca"]
    directed = ["auto", *PROMPTS, *(f"sup-{name}:across-tasks" for name in PROBES)]
    both = " / ".join(MODELS)
    return (
        table(
            [f"\\|τ\\|: {both}", *heads],
            [
                ["*chance*", *(number(one) for one in (*chance, fmean(chance)))],
                *lines(free, "abs_tau", number),
            ],
        )
        + "\n"
        + table([f"τ: {both}", *heads], lines(directed, "tau", signed))
    )
