"""The numbers of studies/label_free/details.md about `auto`, from the folders of studies.

    ccrank bench --preset reproduction --dtype float32 --out build/reproduction
    ccrank bench --datasets everyday,unseen.jsonl,worldlists --dtype float32 --out lists -o auto.exemplars=no \\
      --methods auto,poles,likelihood,axis,prompt-pair,prompt-point,prompt-list,triplet,pca,random,length,frequency
    ccrank bench --datasets everyday,unseen.jsonl,worldlists --dtype float32 --out exemplars --methods auto
    ccrank bench --datasets everyday,unseen.jsonl,worldlists --dtype float32 --out plain --methods auto \\
      -o auto.exemplars=no -o auto.anchor=no
    ccrank bench --models gemma-3-270m --datasets everyday,scalaradj,wikilists --dtype float32 --out gemma-lists \\
      -o auto.exemplars=no --methods auto,poles,likelihood,axis,prompt-point
    ccrank bench --models gemma-3-270m --datasets reviews,entsalience --limit 40 --dtype float32 --out gemma-texts \\
      -o auto.exemplars=no --methods auto,poles,likelihood,axis,prompt-point
    python -m studies.label_free.label_free build/reproduction lists exemplars plain gemma-lists gemma-texts

Folders are joined: of a method that several have on the same dataset and model, the first one's results count. `auto`
is that without exemplars; with them it is `auto-exemplars`, without smoothing and anchoring `auto-plain`. Writes every
task's τ to a table beside the data file (label_free_tasks.csv), means and tests to the data file, and the generated
sections of the page. `--render` only fills the page. Holm's correction is made over all tests of the page when the data
file is read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ccrank.metrics.tasks import holm, mean_with_interval, paired_test
from ccrank.study.results.load import load_environment, load_results
from ccrank.util.files import parse_toml
from studies.label_free.page import fill_page
from studies.reproduction.numbers import data_text, rounded
from studies.reproduction.tables import Data

HERE = Path(__file__).parent
DATA = HERE / "data" / "label_free.json"
PAGE = HERE / "details.md"
DATASETS = ("scalaradj", "wikilists", "worldlists", "everyday", "unseen", "reviews", "entsalience")
METHODS = (
    "auto", "auto-exemplars", "auto-plain", "poles", "likelihood", "axis", "prompt-pair", "prompt-point", "prompt-list",
    "triplet", "pca", "random", "length", "frequency",
)  # fmt: skip
FREE = ("prompt-pair", "triplet", "pca")
"""Those that `auto` is also compared with in the better of their two directions."""
SEEDED = ("random",)
"""Those whose mean |τ| over seeds is not the |τ| of the mean; it is stored beside that of `FREE`."""
VARIANTS = {(True, True): "auto-exemplars", (False, True): "auto", (False, False): "auto-plain"}
"""What `auto` is called, by its options: whether it has exemplars, and whether it is smoothed or anchored."""
UNTESTED = ("random", "auto-plain")
FIRST, SECOND = "default", "gemma-3-270m"
RESAMPLES = 100_000
"""Sign flips: enough for p-values that survive a correction for a hundred tests."""


def task_values(folders: Sequence[Path]) -> pd.DataFrame:
    """Every task's τ: model, dataset, task, half, and a column for each method, `|…|` for its |τ|.

    Values are means over seeds. A task is its position in the dataset; `half` is the half of the dataset that took part
    in choices, where there are halves.
    """
    frames = []
    for folder in folders:
        frame = load_results(folder)
        frame = frame.assign(method=frame["method"].replace("auto", variant_of(folder)))
        frame = frame[frame["method"].isin(METHODS) & frame["split"].isin(["none", "same-task"])]
        frames.append(frame[frame["tau"].notna()].assign(folder=str(folder)))
    joined = pd.concat(frames)
    wanted = joined.drop_duplicates(["model", "dataset", "method"])[["model", "dataset", "method", "folder"]]
    joined = joined.merge(wanted, on=["model", "dataset", "method", "folder"])
    joined = joined[joined["dataset"].isin(DATASETS)]
    keys = ["model", "dataset", "task"]
    means = joined.groupby([*keys, "method"], sort=False)[["tau", "abs_tau"]].mean().unstack("method")
    found = pd.DataFrame({name: means["tau", name] for name in METHODS if ("tau", name) in means})
    for name in (*FREE, *SEEDED):
        if ("abs_tau", name) in means:
            found[f"|{name}|"] = means["abs_tau", name]
    place, half = task_places(folders)
    found = found.reset_index()
    of = list(zip(found["dataset"], found["task"], strict=True))
    found.insert(3, "half", [half[one] for one in of])
    found["task"] = [place[one] for one in of]
    order = {name: number for number, name in enumerate((FIRST, SECOND, *DATASETS))}
    found = found[found["model"].isin([FIRST, SECOND])]
    return found.sort_values(keys, key=lambda column: column.map(order) if column.name != "task" else column)


def variant_of(folder: Path) -> str:
    """What the `auto` of a study is called."""
    options = parse_toml(folder / "config.toml").get("options", {}).get("auto", {})
    exemplars, anchor = (options.get(name, True) not in (False, "no") for name in ("exemplars", "anchor"))
    return VARIANTS[exemplars, anchor]


def task_places(
    folders: Sequence[Path],
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], str]]:
    """(dataset, id) → the task's position in its dataset, and the half that it belongs to.

    A study of a part of a dataset does not know the positions: the folder with most tasks of a dataset does.
    """
    names: dict[str, dict[str, str]] = {}
    for folder in folders:
        own: dict[str, dict[str, str]] = {}
        for line in (folder / "tasks.jsonl").read_text(encoding="utf-8").splitlines():
            task = json.loads(line)
            about = task["about"]
            own.setdefault(about["dataset"], {})[task["id"]] = about.get("half", "")
        for dataset, tasks in own.items():
            if len(tasks) > len(names.get(dataset, {})):
                names[dataset] = tasks
    place = {(name, one): number for name, tasks in names.items() for number, one in enumerate(tasks)}
    half = {(name, one): text for name, tasks in names.items() for one, text in tasks.items()}
    for key, number in place.items():
        if key[0] == "entsalience":  # the rule for contexts was chosen on every other article
            half[key] = ("even", "odd")[number % 2]
    return place, half


def summarise_values(values: pd.DataFrame, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Means with their intervals, means of halves, and tests."""
    rows, halves = [], []
    for (model, dataset), own in values.groupby(["model", "dataset"], sort=False):
        for method in methods_of(own):
            found = mean_with_interval(own[method].dropna(), np.random.default_rng(0))
            numbers = {
                "tau": rounded(found.mean, 5), "low": rounded(found.low, 5), "high": rounded(found.high, 5),
                "tasks": int(own[method].notna().sum()),
            }  # fmt: skip
            rows.append({"model": model, "dataset": dataset, "method": method, **numbers})
            for half, part in own.groupby("half", sort=False):
                if half:
                    mean = mean_with_interval(part[method].dropna(), np.random.default_rng(0))
                    numbers = {
                        "tau": rounded(mean.mean, 5), "low": rounded(mean.low, 5), "high": rounded(mean.high, 5)
                    }  # fmt: skip
                    halves.append(
                        {"model": model, "dataset": dataset, "half": half, "method": method, **numbers}
                    )
    return {"rows": rows, "halves": halves, "tests": [*paired_tests(values, resamples)]}


def methods_of(own: pd.DataFrame) -> list[str]:
    """The methods that one model has on one dataset, of which `auto` must be one."""
    return [name for name in METHODS if name in own and own[name].notna().any()]


def pairs_of(values: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.Series, pd.Series]]:
    """The comparisons of the page: model, dataset, the other side, and the values of both sides by task."""
    parts = {key: own.set_index("task") for key, own in values.groupby(["model", "dataset"], sort=False)}
    for (model, dataset), own in parts.items():
        for method in methods_of(own):
            if method == "auto-exemplars":  # what they add, so that a gain is positive
                yield model, dataset, "auto-exemplars", own[method], own["auto"]
            elif method != "auto" and method not in UNTESTED:
                yield model, dataset, method, own["auto"], own[method]
            if model == FIRST and method in FREE:
                yield model, dataset, f"|{method}|", own["auto"], own[f"|{method}|"]
        if model == SECOND and (FIRST, dataset) in parts:
            yield model, dataset, FIRST, own["auto"], parts[FIRST, dataset]["auto"]


def paired_tests(values: pd.DataFrame, resamples: int = RESAMPLES) -> Iterator[dict[str, Any]]:
    """Sign-flip tests of `auto` against the other methods, and of the second model against the first."""
    for model, dataset, other, first, second in pairs_of(values):
        both = pd.DataFrame({"first": first, "second": second}).dropna()
        # Each test has its own generator, so that a p-value does not depend on the rest of the page.
        test = paired_test(both["first"], both["second"], np.random.default_rng(0), resamples=resamples)
        yield {
            "model": model,
            "dataset": dataset,
            "against": other,
            "tasks": test.n_tasks,
            "difference": rounded(test.difference.mean, 5),
            "p": rounded(test.p_value, 6),
        }


def about(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What was run where: the datasets of each model, machine and versions."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        known = load_environment(folder)
        names = set(load_results(folder)["dataset"])
        for model, loaded in known.get("models", {}).items():
            one = {
                "model": model,
                "dtype": loaded.get("dtype"),
                "device": ", ".join(known.get("gpu") or []) or "a CPU",
                "versions": {name: known.get(name) for name in ("ccrank", "torch", "transformers")},
            }
            found.setdefault(json.dumps(one), {**one, "datasets": set()})["datasets"] |= names
    return [
        {**one, "datasets": [name for name in DATASETS if name in one["datasets"]]} for one in found.values()
    ]


def adjust(data: Data) -> None:
    """Add Holm's p to every test of the page: one family."""
    for test, value in zip(data["tests"], holm([test["p"] for test in data["tests"]]), strict=True):
        test["holm"] = round(float(value), 4)


def load_data(path: Path) -> dict[str, Any]:
    """The data file, with Holm's p of all tests together."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    adjust(found)
    return found


def table_path(data: Path) -> Path:
    """The table of all tasks, beside the data file."""
    return data.with_name(f"{data.stem}_tasks.csv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="*", help="the folders of the studies")
    parser.add_argument("--data", type=Path, default=DATA, help="where the numbers are stored")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose sections are filled")
    parser.add_argument("--render", action="store_true", help="fill the page from the data file only")
    parser.add_argument("--resamples", type=int, default=RESAMPLES, help="sign flips for each test")
    asked = parser.parse_args()
    if not asked.render:
        if not asked.folders:
            parser.error("give folders of studies, or --render")
        values = task_values(asked.folders)
        asked.data.parent.mkdir(parents=True, exist_ok=True)
        # All digits: a test by sign flips depends on which sums of differences are equal.
        values.to_csv(table_path(asked.data), index=False, lineterminator="\n", float_format="%.15g")
        found = {"about": about(asked.folders), **summarise_values(values, asked.resamples)}
        asked.data.write_text(data_text(found), encoding="utf-8")
    text = asked.page.read_text(encoding="utf-8")
    asked.page.write_text(fill_page(text, load_data(asked.data)), encoding="utf-8")
    print(f"{asked.data} and {asked.page}", file=sys.stderr)


if __name__ == "__main__":
    main()
