"""The paper's claims about prompting: pairwise accuracy, single listwise runs, calibration, transitivity, wording.

    python -m studies.reproduction.claims_prompting [--model default] [--datasets synthfacts,scalaradj] [--limit N]
        [--device auto] [--dtype float32] [--seeds 5] [--shuffles 5] [--probes pca,triplet,ordreg,random,ccs-pair]
        [--wordings FILE] [--only pairs,wordings] [--json FILE]

Prints Markdown tables, one for each question, with chance levels; `claims_measures.py` says how each number is
computed. The wordings are in `prompting_wordings.toml`. Probes are the paper's: one for each task and seed, on the last
layer. A list of options is also read with the letters calibrated (`prompt-list`, calibration=letters).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ccrank import CcrankError, CcrankWarning, Reader, ReaderOptions, Task, load_dataset
from ccrank.api import rank_tasks
from ccrank.io.taskfiles import read_tasks
from ccrank.methods.probe_pipeline.rankers import fit_layers, training_device
from ccrank.methods.probe_pipeline.states import read_states
from ccrank.methods.probing.batch import ordered_pairs
from ccrank.methods.probing.objectives import ProbeSpec, objective_of
from ccrank.methods.prompting.listwise import DIRECTIONS
from ccrank.metrics.aggregation import margins_of_pairs, wins_margins
from ccrank.metrics.chance import chance_abs_tau
from ccrank.models.prompter import Prompter
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking, canonical
from ccrank.study.experiment.units import spread
from ccrank.util.files import parse_toml
from studies.reproduction import claims_measures as measures

DATASETS = "synthfacts,scalaradj,wikilists,synthcontext,reviews,entsalience"
PROBES = "pca,triplet,ordreg,random,ccs-pair"
QUESTIONS = ("pairs", "lists", "calibration", "transitivity", "wordings", "direction")
WORDINGS = Path(__file__).with_name("prompting_wordings.toml")
PACKAGED = {"pair": ("pair",), "single": ("single-scale", "single"), "list": ("list",)}
"""The packaged wordings of each prompt type; the first one is the method's own."""

LETTERS = {"prompt-list": "none", "prompt-list, letters calibrated": "letters"}
"""The calibrations of prompt-list: the paper's, and one that removes a bias for letters."""

Runs = list[np.ndarray]
"""Per task (R, N)."""


class Dataset:
    """The tasks of one dataset and what a model answers, read once for all questions."""

    def __init__(
        self, tasks: Sequence[Task], reader: Reader, templates: Templates, seeds: int, shuffles: int
    ) -> None:
        self.tasks = [canonical(task)[0] for task in tasks]
        self.reader, self.templates, self.seeds, self.shuffles = reader, templates, seeds, shuffles
        self._pairs: dict[str, list[np.ndarray]] = {}
        self._lists: dict[tuple[str | None, str, str], list[Ranking]] = {}
        self._probes: dict[tuple[str, str], tuple[Runs, list[np.ndarray]]] = {}

    @property
    def golds(self) -> list[np.ndarray]:
        """Per task the gold values; every task needs them."""
        if missing := [task.id for task in self.tasks if task.values is None]:
            raise CcrankError(f"task {missing[0]!r} has no gold; give `values` or `order`")
        return [np.asarray(task.values) for task in self.tasks]

    def rank(self, method: str, **options: Any) -> list[Ranking]:
        """The rankings of all tasks by a prompting method."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CcrankWarning)
            return rank_tasks(self.tasks, self.reader, method, self.templates, options=options)

    def margins(self, wording: str = "pair") -> list[np.ndarray]:
        """Per task the margins of all ordered pairs, without calibration."""
        if wording not in self._pairs:
            rankings = self.rank("prompt-pair", template=wording, calibration="none", pairs="all")
            self._pairs[wording] = [one.pair_margins for one in rankings if one.pair_margins is not None]
        return self._pairs[wording]

    def calibrated(self, wording: str = "pair") -> list[np.ndarray]:
        """Per task the margins of prompt-pair: calibrated with the task's mean."""
        return [one - np.nanmean(one) for one in self.margins(wording)]

    def lists(
        self, wording: str | None = None, direction: str = "none", calibration: str = "none"
    ) -> list[Ranking]:
        """Rankings by prompt-list, whose runs are its shuffles."""
        key = wording, direction, calibration
        if key not in self._lists:
            options = {"shuffles": self.shuffles, "direction": direction, "calibration": calibration}
            options |= {} if wording is None else {"template": wording}
            self._lists[key] = self.rank("prompt-list", **options)
        return self._lists[key]

    def probe(self, name: str, wording: str) -> tuple[Runs, list[np.ndarray]]:
        """Per task scores (seeds, N) of a probe, and of a probe on pairs its predictions (seeds, N(N − 1))."""
        if (name, wording) not in self._probes:
            self._read_probes([name], wording)
        return self._probes[name, wording]

    def _read_probes(self, names: Sequence[str], wording: str) -> None:
        paired = objective_of(names[0]).prompt == "pair"
        states = read_states(
            self.tasks, Prompter(self.reader, self.templates), paired=paired, template=wording
        )
        for name in names:
            seeds = tuple(range(self.seeds)) if objective_of(name).seeded else (0,)
            spec = ProbeSpec(name, seeds, device=training_device(self.reader))
            layers, _ = fit_layers(self.tasks, states, spec)
            [fits] = layers.values()
            pairs = [fit.pairs for fit in fits if fit.pairs is not None]
            self._probes[name, wording] = [fit.scores for fit in fits], pairs

    def pair_answers(self, name: str) -> tuple[list[list[np.ndarray]], Runs]:
        """Per task the margins of each run's single answers, and the runs' final orders."""
        if name == "prompt-pair":
            own = self.calibrated()
            return [[one] for one in own], [wins_margins(one)[None] for one in own]
        scores, pairs = self.probe(name, "pair")
        return [
            [margins_of_pairs(row.shape[1], ordered_pairs(row.shape[1]), one - 0.5) for one in answers]
            for row, answers in zip(scores, pairs, strict=True)
        ], scores

    def runs(self, method: str, wording: str, single_probes: Sequence[str] = ()) -> Runs:
        """Per task (R, N) scores by a method with a wording; probes on the same states are fitted together."""
        if method == "prompt-pair":
            return [wins_margins(one)[None] for one in self.calibrated(wording)]
        if method == "prompt-point":
            return [one.scores[None] for one in self.rank(method, template=wording)]
        if method == "prompt-list":
            return [one.scores[None] for one in self.lists(None if wording == "list" else wording)]
        if method == "prompt-list:single":
            found = self.lists(None if wording == "list" else wording)
            return [one.runs for one in found if one.runs is not None]
        if method in single_probes and (method, wording) not in self._probes:
            self._read_probes(single_probes, wording)
        return self.probe(method, wording)[0]


def measure(
    dataset: Dataset, wordings: Mapping[str, Sequence[str]], probes: Sequence[str], only: Sequence[str]
) -> dict[str, Any]:
    """The numbers of one dataset, by question."""
    golds, found = dataset.golds, {}
    paired = [name for name in probes if objective_of(name).prompt == "pair"]
    if "pairs" in only:
        found["pairs"] = {
            name: measures.accuracy_of_answers(*dataset.pair_answers(name), golds)
            for name in ("prompt-pair", *paired)
        }
    if "lists" in only:
        found["lists"] = {
            name: listwise(dataset.lists(calibration=how), golds) for name, how in LETTERS.items()
        }
    if "calibration" in only:
        found["calibration"] = measures.calibrations(dataset.margins(), golds)
    if "transitivity" in only:
        found["transitivity"] = {
            name: measures.transitivity(dataset.pair_answers(name)[0]) for name in ("prompt-pair", *paired)
        }
    if "wordings" in only:
        single = [name for name in probes if name not in paired]
        types = {
            "prompt-pair": "pair",
            "prompt-point": "single",
            "prompt-list": "list",
            "prompt-list:single": "list",
        }
        types |= dict.fromkeys(paired, "pair") | dict.fromkeys(single, "single")
        found["wordings"], found["by_wording"] = {}, {}
        for method, kind in types.items():
            runs = [dataset.runs(method, one, single) for one in wordings[kind]]
            found["wordings"][method] = measures.sensitivity(runs, golds)
            values = measures.abs_tau_by_wording(runs, golds).mean(axis=1)
            found["by_wording"][method] = dict(zip(wordings[kind], map(float, values), strict=True))
    if "direction" in only:
        found["direction"] = {
            f"{direction}{name.removeprefix('prompt-list')}": row
            for name, how in LETTERS.items()
            for direction, row in measures.directions(
                {
                    one: [ranking.scores for ranking in dataset.lists(direction=one, calibration=how)]
                    for one in DIRECTIONS
                },
                golds,
            ).items()
        }
    return found


def listwise(rankings: Sequence[Ranking], golds: Sequence[np.ndarray]) -> dict[str, float]:
    """The measures of one dataset's rankings by prompt-list."""
    return measures.listwise(
        [one.scores for one in rankings],
        [one.runs for one in rankings if one.runs is not None],
        [one.consistency["label_order"] for one in rankings],
        golds,
    )


HEADS = {
    "pairs": (
        "Accuracy of single pairwise answers and of the final order (direction-free)",
        "single=single answers,single_coins=chance: coins,single_permuted=chance: gold permuted,final=final order,"
        "final_chance=chance,gap=gap,gap_permuted=gap by chance",
    ),
    "lists": (
        "Listwise: the joined ranking and single runs",
        "joined_abs_tau=joined |τ|,single_abs_tau=single runs |τ|,single_sd=± over runs,chance=chance,"
        "joined_tau=joined τ,single_tau=single τ,within=sd of τ within a task,within_by_chance=chance,"
        "agree=τ between runs,labels=τ with the labels' order",
    ),
    "calibration": (
        "Calibration of prompt-pair",
        "yes=share of Yes,one_answer=tasks with one answer,tau=τ,abs_tau=|τ|,p=p against none",
    ),
    "transitivity": (
        "Circular triads per task",
        "triads=triads,by_chance=circular by chance,single=in single answers,net=in the net of both orders,"
        "share_single=share (single),share_net=share (net),coefficient=ζ,coefficient_by_chance=ζ by chance,z=z,p=p",
    ),
    "wordings": (
        "Five wordings of each prompt: mean |τ| and its deviation over wordings",
        "mean=|τ|,chance=chance,sd=sd over wordings,sd_by_chance=sd by chance,between=|τ| between wordings",
    ),
    "direction": ("Directed listwise prompts", "tau=τ,abs_tau=|τ|,p=p against none,agree=τ between both"),
}


def print_tables(results: Mapping[str, Mapping[str, Any]], only: Sequence[str]) -> None:
    """A Markdown table for each question: a row for each dataset and method or variant."""
    for question in only:
        title, columns = HEADS[question]
        names = dict(column.split("=") for column in columns.replace("|", r"\|").split(","))
        print(f"\n### {title}\n")
        print(f"| dataset | | {' | '.join(names.values())} |")
        print("|---" * (len(names) + 2) + "|")
        for dataset, found in results.items():
            for variant, row in found[question].items():
                cells = [cell(row.get(name, math.nan), name) for name in names]
                print(f"| {dataset} | {variant} | {' | '.join(cells)} |")
        if question == "wordings":
            print_wordings({name: found["by_wording"] for name, found in results.items()})


def print_wordings(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """The mean |τ| of each method and wording: a column for each dataset."""
    print(f"\n| \\|τ\\| | wording | {' | '.join(results)} |")
    print("|---" * (len(results) + 2) + "|")
    first = next(iter(results.values()))
    for method, wordings in first.items():
        for wording in wordings:
            cells = [f"{found[method][wording]:.3f}" for found in results.values()]
            print(f"| {method} | {wording} | {' | '.join(cells)} |")


def cell(value: float, name: str) -> str:
    """A number as the tables show it; signed values with their sign."""
    if math.isnan(value):
        return ""
    signed = name in ("tau", "joined_tau", "single_tau", "gap", "gap_permuted", "z", "agree", "labels")
    return f"{value:+.3f}" if signed else f"{value:.3f}"


def plain(value: Any) -> Any:
    """The value with None for NaN, which JSON lacks."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def wordings_of(path: Path) -> dict[str, list[str]]:
    """The wordings of each prompt type: the packaged ones, then those of the file, by the prefix of their names."""
    own = [*parse_toml(path)]
    if unknown := [name for name in own if name.partition("-")[0] not in PACKAGED]:
        raise CcrankError(f"{path}: {unknown[0]!r} must begin with pair-, single- or list-")
    return {
        kind: [*names, *(name for name in own if name.startswith(f"{kind}-"))]
        for kind, names in PACKAGED.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default")
    parser.add_argument(
        "--datasets", default=DATASETS, help="names of datasets and task files, comma-separated"
    )
    parser.add_argument("--data-dir", default=None, help="folder of the datasets' files")
    parser.add_argument("--limit", type=int, default=None, help="tasks of each dataset, evenly spread")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seeds", type=int, default=5, help="of each probe")
    parser.add_argument("--shuffles", type=int, default=5, help="runs of prompt-list")
    parser.add_argument("--probes", default=PROBES, help="for pairs and wordings; empty for prompts alone")
    parser.add_argument("--wordings", type=Path, default=WORDINGS)
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, comma-separated")
    parser.add_argument("--json", type=Path, default=None, help="write all numbers to this file")
    asked = parser.parse_args()
    only = asked.only.split(",")
    if unknown := [name for name in only if name not in QUESTIONS]:
        parser.error(f"no question {unknown[0]!r}; there are {', '.join(QUESTIONS)}")
    start = time.perf_counter()
    templates, wordings = load_templates(asked.wordings), wordings_of(asked.wordings)
    reader = Reader.open(asked.model, ReaderOptions(device=asked.device, dtype=asked.dtype, truncate=True))
    results: dict[str, Any] = {}
    for given in asked.datasets.split(","):
        tasks = read_tasks(given) if given.endswith(".jsonl") else load_dataset(given, asked.data_dir)
        dataset = Dataset(spread(tasks, asked.limit), reader, templates, asked.seeds, asked.shuffles)
        name = Path(given).stem if given.endswith(".jsonl") else given
        results[name] = measure(dataset, wordings, [one for one in asked.probes.split(",") if one], only)
        results[name]["tasks"] = len(dataset.tasks)
        results[name]["chance_abs_tau"] = float(np.mean([chance_abs_tau(len(one)) for one in dataset.golds]))
        print(
            f"{name}: {len(dataset.tasks)} tasks, {time.perf_counter() - start:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        if asked.json is not None:  # after each dataset: a run that is cut short keeps the others
            about = {
                "model": reader.name,
                "seconds": round(time.perf_counter() - start, 1),
                "wordings": wordings,
            }
            asked.json.write_text(
                json.dumps(plain({**about, "datasets": results}), indent=1) + "\n", encoding="utf-8"
            )
    print_tables(results, only)


if __name__ == "__main__":
    main()
