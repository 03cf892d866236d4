"""ScalarAdj: half-scales of adjectives by intensity (de Melo & Bansal 2013, Wilkinson & Oates 2016, Cocos et al. 2018).

A file contains one half-scale, weakest first: `level<TAB>word`, with words of one level joined by ` || `. Of a level
with several words the first is kept; scales that then have the same words in the same order are one task, named after
the first file.
"""

from __future__ import annotations

from pathlib import Path

from ccrank.errors import CcrankError
from ccrank.study.datasets.dataset import MIN_ITEMS, task_of_gold
from ccrank.study.datasets.locate import DataFolder, locate
from ccrank.task import Criterion, Task, normal_form
from ccrank.util.files import read_text

_COLLECTIONS = ("crowd", "demelo", "wilkinson")
_COMMIT = "b6c4194285e3fa6324aec0babe17b3c3c65038e1"
RANKINGS = DataFolder(
    path="scalaradj",
    url=f"https://codeload.github.com/ainagari/scalar_adjs/tar.gz/{_COMMIT}",
    sha256="b0a26d5832bb87c1cb69e56255bd9df91a5561987763e7e3a85b5a7bace42c93",
    members=rf"[^/]+/data/((?:{'|'.join(_COLLECTIONS)})/gold_rankings/[^/]+\.rankings)",
    holds="*/gold_rankings/*.rankings",
)
_CRITERION = Criterion(
    "intensity", comparative="more intense", poles=("mild", "intense"), category="adjective"
)


def read(data_dir: str | Path | None = None) -> list[Task]:
    folder = locate(RANKINGS, data_dir)
    tasks: list[Task] = []
    seen: set[tuple[str, ...]] = set()
    for collection in _COLLECTIONS:
        paths = sorted((folder / collection / "gold_rankings").glob("*.rankings"))
        if not paths:
            raise CcrankError(
                f"there are no rankings in {folder / collection / 'gold_rankings'}; "
                f"get that folder from {RANKINGS.url}"
            )
        for path in paths:
            scale = _scale(path)
            words = tuple(scale)
            if len(words) < MIN_ITEMS or words in seen:
                continue
            seen.add(words)
            about = {"collection": collection, "file": path.name}
            tasks.append(task_of_gold(_CRITERION, scale, f"{collection}-{path.stem}", about=about))
    return tasks


def _scale(path: Path) -> dict[str, float]:
    """Level by word, weakest first, the first word of each level."""
    levels: dict[float, str] = {}
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        level, _, words = line.partition("\t")
        try:
            levels.setdefault(float(level), normal_form(words.split("||")[0]))
        except ValueError:
            raise CcrankError(f"{path}, line {number}: {line!r} is not `level<TAB>word`") from None
    return {word: level for level, word in sorted(levels.items())}
