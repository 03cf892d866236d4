"""The numbers of studies/reproduction/details.md, from the folder of a study.

    ccrank bench --preset reproduction --dtype float32 --device cuda --out FOLDER
    python -m studies.reproduction.numbers FOLDER [--data data/reproduction.json] [--page README.md]

Writes all numbers to the data file and the generated sections of the page, which is otherwise written by hand.
`--render` only fills the page from the data files. What other benchmarks wrote beside the data file is taken from there
where it exists: `sensitivity.json`, `claims_prompting.json` and `pair_answers.json`. A second model is in
studies/sizes/sizes.csv. Holm's correction is not stored: it is made over the tests of all files when they are read.
Methods and columns that a study lacks are left out of the tables.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccrank.metrics.order import tau_b
from ccrank.metrics.tasks import detectable_difference, paired_test
from ccrank.study.experiment.study import Study
from ccrank.study.results.load import load_environment, load_results
from ccrank.study.results.summary import held_out_direction, summarise_results
from ccrank.util.files import parse_toml
from studies.reproduction.family import adjust
from studies.reproduction.page import fill_page
from studies.reproduction.tables import PAPER, TESTED
from studies.sizes.sizes import read_csv

HERE = Path(__file__).parent
DATA = HERE / "data" / "reproduction.json"
PAGE = HERE / "details.md"
SIZES = HERE.parent / "sizes" / "sizes.csv"
BESIDE = ("sensitivity", "claims_prompting", "pair_answers")
"""Files beside the data file, by the benchmarks of the same names."""
PROMPTS = ("prompt-pair", "prompt-point", "prompt-list")
PROBES = ("ccs-pair", "ccs", "margin", "triplet", "ordreg")
SUB_BATCHES = {
    "ccs-pair@pairs": "ccs-pair",
    "ccs@pairs": "ccs",
    "margin@pairs": "margin",
    "triplet@triples": "triplet",
}
RESAMPLES, P_DIGITS = 10_000, 7
DRAWS = 1_000_000
"""Random signs of each test, so that the smallest p is far below what Holm's correction over the page asks for."""
ROW = (
    "tau", "tau_low", "tau_high", "tau_sd", "abs_tau", "abs_tau_sd", "accuracy", "free_accuracy", "pair_accuracy",
    "free_pair_accuracy", "chance_free_pair_accuracy", "consistency", "distinct_tokens", "common_tau",
    "common_tau_sd", "common_tau_chance", "common_tau_p",
)  # fmt: skip
"""What is kept of each entry of `summarise_results`, where it exists."""


def comparisons() -> Iterator[tuple[str, str, str]]:
    """The paired tests: which claim each belongs to, and the two methods (with their splits)."""
    same, across = "same-task", "across-tasks"
    for prompt in PROMPTS:
        yield "probing and prompting", f"triplet:{same}", prompt
    for probe in PROBES:
        if probe != "triplet":
            yield "the best probe", f"triplet:{same}", f"{probe}:{same}"
    for baseline in ("random", "pca"):
        for probe in PROBES:
            yield "baselines", f"{probe}:{same}", baseline
    for prompt in PROMPTS[:2]:
        yield "listwise prompting", "prompt-list", prompt
    for prompt in PROMPTS[:2]:
        yield "listwise prompting", "prompt-list:single", prompt
    for probe in PROBES:
        yield "across tasks", f"{probe}:{across}", f"random:{across}"
    for probe in PROBES:
        yield "supervised across tasks", f"{probe}:{across}", f"sup-{probe}:{across}"
    yield "supervised across tasks", f"triplet:{across}", f"sup-ordreg:{across}"
    for variant, whole in SUB_BATCHES.items():
        yield "sub-batches", f"{variant}:{same}", f"{whole}:{same}"


def summarise_study(folder: Path, model: str | None = None) -> dict[str, Any]:
    """All numbers of the page from the results of a study, one model's."""
    frame = load_results(folder)
    model = model or str(frame["model"].iloc[0])
    frame = frame[(frame["model"] == model) & frame["tau"].notna()]
    frame = frame.assign(unit=[unit_of(*key) for key in zip(frame["method"], frame["split"], strict=True)])
    # Datasets in the paper's order, methods in the study's: the units of an unfinished study have none.
    wanted = [*PAPER, *frame["dataset"], *study_units(folder), *frame["unit"]]
    place = {name: number for number, name in enumerate(dict.fromkeys(wanted))}
    frame = frame.sort_values(["dataset", "unit"], key=lambda column: column.map(place), kind="stable")
    units = dict(iter(frame.groupby(["dataset", "method", "split"], sort=False)))
    rows = []
    for entry in summarise_results(frame):
        runs = units[entry["dataset"], entry["method"], entry["split"]]
        rows.append(row_of(entry | held_out_direction(runs, DRAWS)))
    return {
        "about": about(folder, frame, model),
        "datasets": [dataset_of(name, own) for name, own in frame.groupby("dataset", sort=False)],
        "rows": rows,
        "tests": paired_tests(frame),
        "initialisation": initialisation(frame),
        "sub_batches": sub_batch_agreement(frame),
    }


def unit_of(method: str, split: str) -> str:
    """A method with its split, as in a study."""
    return method if split == "none" else f"{method}:{split}"


def study_units(folder: Path) -> list[str]:
    """The methods of the study with their splits, as they were given; none for a folder without a study."""
    path = folder / "config.toml"
    return [str(choice) for choice in Study.load(path).choices] if path.exists() else []


def about(folder: Path, frame: pd.DataFrame, model: str) -> dict[str, Any]:
    """The study: model, tasks, versions."""
    known = load_environment(folder)
    config = parse_toml(folder / "config.toml") if (folder / "config.toml").exists() else {}
    loaded = known.get("models", {}).get(model, {})
    return {
        "model": model,
        "parameters": loaded.get("parameters"),
        "layers": loaded.get("layers"),
        "width": loaded.get("width"),
        "dtype": loaded.get("dtype"),
        "device": loaded.get("device"),
        "gpu": known.get("gpu"),
        "versions": {name: known.get(name) for name in ("ccrank", "torch", "transformers")},
        "seeds": config.get("seeds", int(frame["seed"].nunique())),
        "limit": config.get("limit"),
        "draws": DRAWS,
    }


def dataset_of(name: str, own: pd.DataFrame) -> dict[str, Any]:
    """Size and chance levels of a dataset."""
    tasks = own.drop_duplicates("task")
    return {
        "dataset": name,
        "kind": str(tasks["kind"].iloc[0]),
        "tasks": len(tasks),
        "items": rounded(tasks["n_items"].mean()),
        "chance_abs_tau": rounded(tasks["chance_abs_tau"].mean()),
        "chance_free_accuracy": rounded(tasks["chance_free_accuracy"].mean()),
    }


def row_of(entry: dict[str, Any]) -> dict[str, Any]:
    """One row of the large tables."""
    digits = {"common_tau_p": P_DIGITS}
    known = [name for name in ROW if name in entry and not math.isnan(entry[name])]
    kept = {name: rounded(entry[name], digits.get(name, 4)) for name in known}
    return {
        "dataset": entry["dataset"],
        "unit": unit_of(entry["method"], entry["split"]),
        "family": entry["family"],
        "directed": entry["directed"],
        **kept,
    }


def task_table(frame: pd.DataFrame, value: str = "abs_tau") -> pd.DataFrame:
    """Mean over seeds: a row for each dataset and task, a column for each unit."""
    return frame.pivot_table(index=["dataset", "task"], columns="unit", values=value, sort=False)


def paired_tests(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The sign-flip tests of `comparisons` on each dataset, in |τ|, with the difference that they could find."""
    table, found = task_table(frame), []
    for claim, first, second in comparisons():
        for dataset in TESTED:
            if dataset not in table.index.get_level_values(0) or not {first, second} <= {*table.columns}:
                continue
            own = table.loc[dataset][[first, second]].dropna()
            if len(own) < 2:
                continue
            # Each test has its own generator, so that a p-value does not depend on the rest of the page.
            generator = np.random.default_rng(0)
            test = paired_test(own[first], own[second], generator, resamples=RESAMPLES, flips=DRAWS)
            deviation = float((own[first] - own[second]).std(ddof=1))
            found.append(
                {
                    "claim": claim,
                    "first": first,
                    "second": second,
                    "dataset": dataset,
                    "tasks": test.n_tasks,
                    "difference": rounded(test.difference.mean),
                    "low": rounded(test.difference.low),
                    "high": rounded(test.difference.high),
                    "p": rounded(test.p_value, P_DIGITS),
                    "sd": rounded(deviation),
                    "detectable": rounded(detectable_difference(deviation, test.n_tasks)),
                }
            )
    return found


def initialisation(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """How much of a probe's τ is that of its initial direction: `random` of the same seed.

    Probes on pairs start in other states than `random`, so they are left out.
    """
    wanted = [f"{name}:same-task" for name in (*PROBES[1:], *list(SUB_BATCHES)[1:])]
    table = frame.pivot_table(index=["dataset", "task", "seed"], columns="unit", values="tau", sort=False)
    found = []
    for dataset in TESTED:
        for unit in wanted:
            if dataset in table.index.get_level_values(0) and {unit, "random"} <= {*table.columns}:
                own = table.loc[dataset][[unit, "random"]].dropna()
                found.append(
                    {
                        "dataset": dataset,
                        "unit": unit,
                        "correlation": rounded(own[unit].corr(own["random"])),
                        "same": rounded((own[unit] - own["random"]).abs().lt(1e-12).mean()),
                    }
                )
    return found


def sub_batch_agreement(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Mean τ between the rankings of a probe trained on whole tasks and with sub-batches, from the same start."""
    found = []
    for variant, whole in SUB_BATCHES.items():
        pair = frame[frame["unit"].isin([f"{variant}:same-task", f"{whole}:same-task"])]
        for dataset in TESTED:
            own = pair[pair["dataset"] == dataset].set_index(["task", "seed", "method"])["scores"]
            if own.empty or variant not in own.index.get_level_values("method"):
                continue
            wide = own.unstack("method").dropna()
            taus = [tau_b(one, other) for one, other in zip(wide[variant], wide[whole], strict=True)]
            found.append({"dataset": dataset, "unit": f"{variant}:same-task", "tau": rounded(np.mean(taus))})
    return found


def rounded(value: float, digits: int = 4) -> float:
    """A number as it is stored."""
    return round(float(value), digits)


def data_text(found: dict[str, Any]) -> str:
    """JSON with one entry of a list on a line, so that changes can be read."""
    parts = []
    for name, value in found.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(one, ensure_ascii=False)}" for one in value)
            parts.append(f' "{name}": [\n{lines}\n ]')
        else:
            parts.append(f' "{name}": {json.dumps(value, ensure_ascii=False)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def load_data(data: Path) -> dict[str, Any]:
    """The data file, with the files beside it that exist, the study of sizes, and Holm's p of all tests together."""
    found: dict[str, Any] = json.loads(data.read_text(encoding="utf-8"))
    for name in BESIDE:
        beside = data.with_name(f"{name}.json")
        if beside.exists():
            found[name] = json.loads(beside.read_text(encoding="utf-8"))
    found["sizes"] = read_csv(SIZES)
    adjust(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of the study")
    parser.add_argument("--model", default=None, help="of a study with several; the first without it")
    parser.add_argument("--data", type=Path, default=DATA, help="where the numbers are stored")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose sections are filled")
    parser.add_argument("--render", action="store_true", help="fill the page from the data file only")
    asked = parser.parse_args()
    if not asked.render:
        if asked.folder is None:
            parser.error("give the folder of a study, or --render")
        asked.data.parent.mkdir(parents=True, exist_ok=True)
        asked.data.write_text(data_text(summarise_study(asked.folder, asked.model)), encoding="utf-8")
    text = asked.page.read_text(encoding="utf-8")
    asked.page.write_text(fill_page(text, load_data(asked.data)), encoding="utf-8")
    print(f"{asked.data} and {asked.page}", file=sys.stderr)


if __name__ == "__main__":
    main()
