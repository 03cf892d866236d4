"""A scale: a list's ranking as an artefact that scores any item. A ranking is a fitted scale applied to its own items.

The items that a scale was fitted on keep the scores of their ranking; other items go through the same steps with the
constants of the list. A file holds no item's text, only digests by which items are recognised.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ccrank.errors import CcrankError
from ccrank.io import Rows, rows_of_items
from ccrank.methods.labelfree.intervals import uncertainty_of
from ccrank.models import ReadingCache
from ccrank.models.prompter import Prompter
from ccrank.models.reading import Cost, Progress
from ccrank.models.remote import OpenModel, open_model
from ccrank.prompts import Templates
from ccrank.ranking import ItemScores, MakeScorer, Ranking, Scorer, Uncertainty, finite
from ccrank.reader_options import ReaderOptions
from ccrank.scale.stored import (
    Known,
    Notes,
    Saved,
    cannot_score,
    check_model,
    digest,
    identity_of,
    in_chat_template,
    model_to_open,
)
from ccrank.task import Criterion, Task, check_text
from ccrank.util.files import write_atomically
from ccrank.util.tensors import decode, encode, fingerprint, load
from ccrank.util.zscores import Units

AT_A_TIME = 256
"""Items whose states are in memory at a time."""
KEPT_DETAILS = ("poles", "layer", "template", "seeds", "weights")


@dataclass(frozen=True, eq=False, repr=False)
class Scale:
    """A fitted scale: `scale.score(items)`, `scale.rank(items)`, `scale.save(path)`; see `ccrank.fit`."""

    notes: Notes
    known: Known
    """The items that it was fitted on; of several lists none."""
    make: MakeScorer | None = None
    """Makes `scorer` when it is needed."""
    reader: OpenModel | None = None
    """The model, if it is open; else it is opened by its name when it is needed."""
    ranking: Ranking | None = None
    """The ranking of the items that it was fitted on; None for several lists, and for a scale from a file."""
    members: tuple[Scale, ...] = ()
    """The scales of a jury, one for each model."""
    weights: tuple[float, ...] = ()
    """The weights of the members."""

    @classmethod
    def of(
        cls,
        ranking: Ranking,
        make: MakeScorer | None,
        reader: OpenModel,
        templates: Templates,
        options: Mapping[str, object],
    ) -> Scale:
        """The scale of a ranking, with what its method found out about the list."""
        details = {name: ranking.details[name] for name in KEPT_DETAILS if name in ranking.details}
        if "labels" in ranking.details:
            details["labels"] = {**ranking.details["labels"], "disagree": [], "reversed": []}
        notes = Notes(
            criterion=ranking.task.criterion,
            context=ranking.task.context,
            id=ranking.task.id,
            method=ranking.method,
            options={name: str(value) for name, value in options.items() if name != "labels"},
            model=reader.name,
            identity=identity_of(reader),
            chat=in_chat_template(reader),
            directed=ranking.directed,
            templates=templates.by_name,
            confidence=ranking.confidence,
            consistency={name: finite(value) for name, value in ranking.consistency.items()},
            details=details,
            warnings=ranking.warnings,
        )
        return cls(notes, Known.of(ranking), make, reader, ranking)

    @property
    def criterion(self) -> Criterion:
        """By what items are scored; its `understood` says what comes first."""
        return self.notes.criterion

    @cached_property
    def scorer(self) -> Scorer | None:
        """What scores other items; None if the method compares the items of a list with each other."""
        return None if self.make is None else self.make()

    @property
    def templates(self) -> Templates:
        """The wording that items are read with."""
        return Templates(self.notes.templates)

    @property
    def gives_deviations(self) -> bool:
        """Whether the score of any item has a standard deviation: with one model, by labels or by several signals."""
        return self.known.doubts is not None and not self.members

    @property
    def scores_others(self) -> bool:
        """Whether it scores items that it was not fitted on."""
        return all(part.scorer is not None for part in self.members or (self,))

    def rank(self, items: Iterable[object] | Rows, column: Hashable | None = None) -> Ranking:
        """Rank items by their scores on this scale.

        Parameters
        ----------
        items, column
            As in `ccrank.rank`; items that the scale was fitted on keep the scores of their ranking.
        """
        return self.ranking_of(items if isinstance(items, Rows) else rows_of_items(items, column))

    def score(self, items: Iterable[object] | Rows, column: Hashable | None = None) -> ItemScores:
        """Scores of items, each of which depends on its item and the scale alone; one item is enough.

        Parameters
        ----------
        items, column
            As in `ccrank.rank`.

        Returns
        -------
        ItemScores
            `values`, NaN for rows of a frame without an item, and `deviation`, where `auto`, `anchored` or labels give
            one.
        """
        rows = items if isinstance(items, Rows) else rows_of_items(items, column)
        scores = self.scores_of(rows.items)
        index_of_row = np.array([-1 if index is None else index for index in rows.places], int)
        deviation = None if scores.deviation is None else np.append(scores.deviation, np.nan)[index_of_row]
        return ItemScores(np.append(scores.values, np.nan)[index_of_row], deviation, scores.cost)

    def __call__(self, items: Iterable[object]) -> np.ndarray:
        """The scores of items, (N,); see `score`."""
        return self.score(items).values

    def __len__(self) -> int:
        """The number of items that it was fitted on."""
        return len(self.known.scores)

    def __repr__(self) -> str:
        return f"<Scale of {self.criterion.name!r}: {self.notes.method} on {self.notes.model}>"

    def ranking_of(self, rows: Rows, progress: Progress | None = None) -> Ranking:
        """As `rank`, of rows."""
        if self.ranking is not None and rows.items == self.ranking.task.items:
            return replace(self.ranking, rows=rows)
        notes, known = self.notes, self.known
        task = rows.task(notes.criterion, notes.context, notes.id)
        scores = self.scores_of(task.items, progress, together=True)
        places = [known.places.get(digest(item), -1) for item in task.items]
        same = len(places) == len(self) and min(places) >= 0
        uncertainty = None
        if same and known.doubts is not None:
            uncertainty = Uncertainty(known.doubts[0][places], *known.doubts[1:, places].astype(int))
        elif scores.deviation is not None:
            uncertainty = uncertainty_of(scores.values, scores.deviation)
        about: dict[str, Any] = {"uncertainty": uncertainty, "warnings": notes.warnings}
        named = (notes.method, notes.model, notes.directed)
        ranking = Ranking(task, scores.values, *named, cost=scores.cost, rows=rows, **about)
        if not same:
            return ranking
        measures = {name: np.nan if value is None else value for name, value in notes.consistency.items()}
        return replace(ranking, consistency=measures, details=notes.details, confidence=notes.confidence)

    def scores_of(
        self, items: Sequence[str], progress: Progress | None = None, together: bool = False
    ) -> ItemScores:
        """Scores of different texts; `together` if they are a list, whose items may be compared with each other."""
        known = self.known
        places = np.array([known.places.get(digest(item), -1) for item in items], int)
        values = np.append(known.scores, np.nan)[places]
        doubts = known.doubts if self.gives_deviations else None
        deviation = None if doubts is None else np.append(doubts[0], np.nan)[places]
        new = np.flatnonzero(places < 0)
        if not len(new):
            return ItemScores(values, deviation)
        if getattr(self.scorer, "whole_lists", False):
            if not together:
                raise CcrankError(
                    f"{self.notes.method} compares pairs of items, so it scores no item by itself; rank a list with "
                    "`scale.rank`"
                )
            new = np.arange(len(items))
        read = self._read([items[place] for place in new.tolist()], progress)
        values[new] = read.values
        if deviation is None and len(new) == len(items):
            deviation = read.deviation
        elif deviation is not None and read.deviation is not None:
            deviation[new] = read.deviation
        else:
            deviation = None
        return ItemScores(values, deviation, read.cost)

    def _read(self, items: Sequence[str], progress: Progress | None) -> ItemScores:
        """Scores of items that the scale was not fitted on; of a jury Σ_m w_m z_m, in the units of its own list."""
        if self.members:
            parts = [member.scores_of(items, progress) for member in self.members]
            fitted = np.stack([member.known.scores for member in self.members])  # (M, N)
            units, weights = Units.of(fitted), np.array(self.weights)
            mean = weights @ units(np.stack([part.values for part in parts]))
            return ItemScores(Units.of(weights @ units(fitted))(mean), None, _cost(parts))
        scorer, reader, context = self.scorer, self.open(), self.notes.context
        if scorer is None:
            raise CcrankError(cannot_score(self.notes.method, items[0]))
        check_model(self.notes, reader)
        task = self.task.unchecked(items, context)
        check_text(task)
        prompter = Prompter(reader, self.templates, progress)
        count = 1 if getattr(scorer, "whole_lists", False) else -(-len(items) // AT_A_TIME)
        cuts = pairwise(np.linspace(0, len(items), 1 + count).round().astype(int))
        parts = [scorer.score(task.unchecked(items[start:stop], context), prompter) for start, stop in cuts]
        values = np.concatenate([part.values for part in parts])
        if not np.isfinite(values).all():
            raise CcrankError("a score is not a finite number; try --dtype float32")
        deviations = [part.deviation for part in parts if part.deviation is not None]
        deviation = np.concatenate(deviations) if len(deviations) == len(parts) else None
        return ItemScores(values, deviation, _cost(parts))

    @cached_property
    def task(self) -> Task:
        """A task by the criterion, to ask about other items."""
        return Task(self.criterion, ("first", "second"), self.notes.context, id=self.notes.id)

    def open(self) -> OpenModel:
        """The model of the scale."""
        return self._opened if self.reader is None else self.reader

    @cached_property
    def _opened(self) -> OpenModel:
        return open_model(
            model_to_open(self.notes), ReaderOptions(chat=self.notes.chat), cache=ReadingCache()
        )

    def with_reader(self, *readers: OpenModel) -> Scale:
        """The same scale, read with models that are open.

        Parameters
        ----------
        readers
            The model that it was fitted on; of a jury all of them, in their order.
        """
        needed = len(self.members) or 1
        if len(readers) != needed:
            raise CcrankError(
                f"the scale needs {needed} open models, {self.notes.model}; {len(readers)} were given"
            )
        if self.members:
            members = (part.with_reader(reader) for part, reader in zip(self.members, readers, strict=True))
            return replace(self, members=tuple(members))
        check_model(self.notes, readers[0])
        return replace(self, reader=readers[0], make=_constant(self.scorer))

    @cached_property
    def _saved(self) -> Saved:
        members = tuple(member._saved for member in self.members)
        return Saved(self.notes, self.known, self.scorer, members, self.weights)  # type: ignore[arg-type]

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return encode(self._saved)

    @property
    def fingerprint(self) -> str:
        """A digest of all that its scores depend on."""
        return fingerprint(self._saved)

    def save(self, path: str | Path) -> None:
        """Write the scale to one safetensors file, without the text of any item.

        Parameters
        ----------
        path
            The file.
        """
        write_atomically(path, self.to_bytes(), sync=True)

    @classmethod
    def load(cls, path: str | Path, model: OpenModel | None = None) -> Scale:
        """A scale from its file; nothing in the file is run.

        Parameters
        ----------
        path
            The file.
        model
            The open model, or None to open it by its name when it is needed.
        """
        return cls.of_saved(load(Saved, path), model)

    def push_to_hub(self, repo: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload the scale to the model hub, with a card that says what it is; returns its address.

        Parameters
        ----------
        repo
            The hub id, such as "name/politeness"; it is made if there is none.
        private
            Whether a new one is private.
        token
            An access token; None takes the token of `hf auth login`.
        """
        from ccrank.scale.hub import push

        return push(self, repo, private, token)

    @classmethod
    def from_hub(
        cls,
        repo: str,
        model: OpenModel | None = None,
        *,
        revision: str | None = None,
        token: str | None = None,
    ) -> Scale:
        """A scale from the model hub.

        Parameters
        ----------
        repo
            The hub id.
        model
            As in `load`.
        revision
            A branch, a tag or a commit.
        token
            An access token; None takes the token of `hf auth login`.
        """
        from ccrank.scale.hub import fetched

        return cls.load(fetched(repo, revision, token), model)

    @classmethod
    def from_bytes(cls, content: bytes, model: OpenModel | None = None) -> Scale:
        """As `load`, from the content of a file."""
        return cls.of_saved(decode(Saved, content, "the scale"), model)

    @classmethod
    def of_saved(cls, saved: Saved, model: OpenModel | None) -> Scale:
        """The scale of a file's content."""
        members = tuple(cls.of_saved(member, None) for member in saved.members)
        make = _constant(saved.scorer)
        scale = cls(saved.notes, saved.known, make, members=members, weights=saved.weights)
        return scale if model is None else scale.with_reader(model)


def _constant(scorer: Scorer | None) -> MakeScorer | None:
    return None if scorer is None else lambda: scorer


def _cost(parts: Sequence[ItemScores]) -> Cost:
    return sum((part.cost for part in parts), Cost())


def one_scale(scales: Sequence[Scale]) -> Scale:
    """The scale of one list, or the one that several lists share."""
    if len(scales) == 1:
        return scales[0]
    if not scales:
        raise CcrankError("no tasks: a scale is fitted to one or more")
    first = scales[0]
    if first.make is None or any(scale.make is not first.make for scale in scales):
        raise CcrankError(
            f"{first.notes.method} fits a scale for each of these {len(scales)} tasks: fit those of one task, or pool "
            "four or more of one criterion by the method auto or anchored"
        )
    return replace(first, ranking=None, known=Known.none())
