"""Does the model know the language of the items? Bits per character of lists in eight languages.

python -m studies.confidence.languages read languages.csv
python -m studies.confidence.languages report languages.csv choose.jsonl report.jsonl

`read` ranks each list of `languages.toml`, with its category and without. `report` prints how many lists of each
language have more bits per character than `ccrank.confidence.MAX_BITS`, and how many of the lists that `confidence.py`
has read. The limit was chosen on the lists with even numbers and on the half `choose`.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from ccrank import Criterion, Reader, Task, rank_tasks
from ccrank.confidence import MAX_BITS, RIGHT
from ccrank.metrics.order import kendall_tau
from studies.confidence.confidence import Memory, rows_of
from studies.confidence.lists import HALVES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTS = Path(__file__).with_name("languages.toml")
TERMS = "terms"
"""Lists that are in no language but belong to English."""
KNOWN = {TERMS, "English"}
COLUMNS = ("language", "number", "criterion", "kind", "category", "bits", "tau")


def tasks() -> dict[tuple[str, bool], list[Task]]:
    """The lists of each language, with their categories and without; the id of a list is its number."""
    entries = tomllib.loads(LISTS.read_text(encoding="utf-8"))["list"]
    found: dict[tuple[str, bool], list[Task]] = {}
    for number, entry in enumerate(entries):
        for language in entry.keys() - {"criterion", "category", "order"}:
            items = tuple(entry[language])
            places = entry.get("order", range(len(items)))
            gold = tuple(float(-places.index(place)) for place in range(len(items)))
            for category in (entry["category"], None):
                task = Task(
                    Criterion(entry["criterion"], category=category), items, id=str(number), values=gold
                )
                found.setdefault((language, category is not None), []).append(task)
    return found


def read(out: Path, model: str) -> None:
    """Rank each list as if alone: no criterion is that of four lists of a language."""
    reader = Reader.open(model, cache=Memory())  # type: ignore[arg-type]
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for (language, category), members in tasks().items():
            for task, ranking in zip(members, rank_tasks(members, reader), strict=True):
                assert ranking.confidence is not None
                known = ranking.confidence.features
                tau = "" if language == TERMS else round(kendall_tau(ranking.scores, task.values or ()), 4)
                row = [
                    language,
                    task.id,
                    task.criterion.name,
                    known.kind,
                    category,
                    round(known.bits, 3),
                    tau,
                ]
                writer.writerow(row)
            file.flush()


def report(table: Path, read_lists: Sequence[Path]) -> None:
    """Lists over the limit, and how many of their orders are right, by language, kind of items and half."""
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    print("| items | kind | lists | over the limit | right | right over it |\n|---|---|---|---|---|---|")
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        for language in (row["language"], *(["other languages"] if row["language"] not in KNOWN else [])):
            groups.setdefault((language, row["kind"]), []).append(row)
    for (language, kind), members in sorted(groups.items()):
        over = [row for row in members if float(row["bits"]) > MAX_BITS]
        cells = [share_right(members), share_right(over)]
        print(f"| {language} | {kind} | {len(members)} | {len(over)} | {' | '.join(cells)} |")
    for half, name in enumerate(HALVES):
        for title, languages in (("other languages", None), ("English", {"English"}), (TERMS, {TERMS})):
            own = [
                row
                for row in rows
                if row["kind"] == "name"
                and int(row["number"]) % 2 == half
                and (row["language"] in languages if languages else row["language"] not in KNOWN)
            ]
            over = [row for row in own if float(row["bits"]) > MAX_BITS]
            print(
                f"names, {name}, {title}: {len(over)} of {len(own)} over the limit, right {share_right(over)}"
            )
    for path in read_lists:
        names = [row.features for row in rows_of(path) if row.features.kind == "name"]
        over_limit = sum(not one.language_known for one in names)
        print(f"{path.name}: {over_limit} of {len(names)} lists of names over the limit")


def share_right(rows: Sequence[dict[str, str]]) -> str:
    """Of the lists with gold."""
    right = [float(row["tau"]) > RIGHT for row in rows if row["tau"]]
    return f"{mean(right):.0%} of {len(right)}" if right else "none"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    reading = commands.add_parser("read")
    reading.add_argument("out", type=Path)
    reading.add_argument("--model", default="default")
    reading.set_defaults(run=read)
    reporting = commands.add_parser("report")
    reporting.add_argument("table", type=Path)
    reporting.add_argument("read_lists", type=Path, nargs="*")
    reporting.set_defaults(run=report)
    options = vars(parser.parse_args())
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
