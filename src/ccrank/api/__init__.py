"""The Python API: `rank(items, by=…)` for one list, `rank_tasks` for many, `fit` for scales; `asking` has `ask`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast, overload

from ccrank.api.arguments import checked, opened
from ccrank.errors import CcrankWarning, check_kind
from ccrank.io import rows_of_items
from ccrank.jury import Verdict, combined, fitted, members_of
from ccrank.models import ReadingCache
from ccrank.models.reading import Progress
from ccrank.models.remote import OpenModel, open_model
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking
from ccrank.rankings import GroupedRankings, Rankings
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD, GivenLabels, RankRequest
from ccrank.scale import Scale, one_scale
from ccrank.task import Criterion, Task

if TYPE_CHECKING:
    from typing_extensions import Unpack

Criteria: TypeAlias = list[str] | list[Criterion] | list[str | Criterion] | tuple[str | Criterion, ...]
"""Several criteria, each a column of one table."""


class _RankKeywords(TypedDict, total=False):
    """The keywords of `Ranker.rank`, for its two signatures."""

    comparative: str | None
    poles: tuple[str, str] | None
    category: str | None
    query: str | None
    context: str | None
    column: Hashable | None
    labels: GivenLabels | None
    method: str
    templates: Templates | None
    options: Mapping[str, object] | None


class _ModelKeywords(_RankKeywords, total=False):
    """The keywords of `rank`."""

    model: str | OpenModel
    reader_options: ReaderOptions | None


class Ranker:
    """A loaded model that ranks list after list without loading again; see `load`."""

    def __init__(self, reader: OpenModel) -> None:
        self.reader = reader

    @overload
    def rank(
        self, items: Iterable[object], by: str | Criterion | None = None, **keywords: Unpack[_RankKeywords]
    ) -> Ranking: ...

    @overload
    def rank(self, items: Iterable[object], by: Criteria, **keywords: Unpack[_RankKeywords]) -> Rankings: ...

    @overload
    def rank(
        self,
        items: Iterable[object],
        by: str | Criterion | None = None,
        *,
        group_by: Hashable,
        **keywords: Unpack[_RankKeywords],
    ) -> GroupedRankings: ...

    def rank(
        self, items: Iterable[object], by: str | Criterion | Criteria | None = None, **keywords: Any
    ) -> Ranking | Rankings | GroupedRankings:
        """Rank items by a criterion, or by several.

        Parameters
        ----------
        items, by, query, column, group_by, comparative, poles, category, context, labels, method, templates, options
            As in `ccrank.rank`.
        """
        ranked: Ranking | Rankings | GroupedRankings = rank(
            items, cast("Any", by), model=self.reader, **keywords
        )
        return ranked

    def __repr__(self) -> str:
        return f"<Ranker on {self.reader.name}>"


def load(
    model: str = "default", *, reader_options: ReaderOptions | None = None, cache: bool = True
) -> Ranker:
    """Load a model once, to rank many lists with it.

    Parameters
    ----------
    model
        A short name, a hub id, a folder, a .gguf file, or openai:URL#NAME for a model behind a server.
    reader_options
        Device, precision and the like.
    cache
        Keep readings on disk, so that no prompt is computed twice.
    """
    check_kind("model", model, str, "the name of a model")
    check_kind("reader_options", reader_options, (ReaderOptions, type(None)), "ReaderOptions")
    check_kind("cache", cache, int, "true or false")
    return Ranker(open_model(model, reader_options, cache=ReadingCache() if cache else None))


@overload
def rank(
    items: Iterable[object], by: str | Criterion | None = None, **keywords: Unpack[_ModelKeywords]
) -> Ranking: ...


@overload
def rank(items: Iterable[object], by: Criteria, **keywords: Unpack[_ModelKeywords]) -> Rankings: ...


@overload
def rank(
    items: Iterable[object],
    by: str | Criterion | None = None,
    *,
    group_by: Hashable,
    **keywords: Unpack[_ModelKeywords],
) -> GroupedRankings: ...


@checked
def rank(
    items: Iterable[object],
    by: str | Criterion | Criteria | None = None,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    query: str | None = None,
    context: str | None = None,
    column: Hashable | None = None,
    group_by: Hashable | None = None,
    labels: GivenLabels | None = None,
    model: str | OpenModel = "default",
    reader_options: ReaderOptions | None = None,
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    options: Mapping[str, object] | None = None,
) -> Ranking | Rankings | GroupedRankings:
    """Rank items by a criterion, or documents by their relevance to a query, with a language model, without labels.

    Parameters
    ----------
    items
        The texts to rank, at least two different ones; equal ones are tied. Or a pandas or polars frame, whose rows
        are ranked by the texts of one column.
    by
        The criterion: a phrase such as "size", "least expensive" or "price (low to high)", or a `Criterion`. What was
        understood is in the result's `understood`; see docs/how-to/phrase-a-criterion.md. Or a list of criteria, for a
        table of `Rankings`: see docs/how-to/rank-by-several-criteria.md.
    comparative
        How the higher item compares with the lower one: "larger".
    poles
        Words for the two poles, low and high: ("small", "large"). The high pole comes first.
    category
        What the items are, in the singular: "country".
    query
        A question or keywords, in place of a criterion: the items are documents, the most relevant first; see
        docs/how-to/rerank-search-results.md.
    context
        A text that the items are about.
    column
        The frame's column of texts; it may be left out where there is but one.
    group_by
        A column of the frame: the rows of each of its values are a list of their own, ranked as if alone.
    labels
        A few known labels, which may contradict each other: item → value, where the keys "best" and "worst" may hold
        items, "ranks" item → rank and "orders" lists of items; or a list of orders such as [("Russia", "Chad")],
        highest first. The ranking then has an `uncertainty`.
    model
        A short name, a hub id, a folder, a .gguf file, openai:URL#NAME for a model behind a server, or an open
        `Reader`. Several names with commas between them are a jury, whose scores are averaged.
    reader_options
        Device, precision and the like, for a model that is given by its name.
    method
        A method's name; `ccrank methods` lists them.
    templates
        The prompt templates; the packaged ones if None.
    options
        The options of the method, by name; `ccrank methods NAME` lists them.

    Returns
    -------
    Ranking, Rankings for a list of criteria, or GroupedRankings
        The items with scores, best first; its `to_frame()` has all columns of a frame that was given. Its `warnings`
        say what to know before relying on it; they are also issued as a `CcrankWarning`.
    """
    rows = rows_of_items(items, column)
    request = RankRequest(
        items=rows,
        by=by,
        comparative=comparative,
        poles=poles,
        category=category,
        query=query,
        context=context,
        group_by=group_by,
        labels=labels,
        method=method,
        options=options or {},
        templates=templates or load_templates(),
    )
    skipped = rows.notes()[:1] if rows.unranked else []
    for note in (*skipped, *(request.groups.notes() if request.groups is not None else ())):
        _warn_caller(note)
    ranked = request.result(_run(request, model, reader_options))
    assert not isinstance(ranked, list)
    return ranked


_OF_A_MODEL = ("model", "reader_options")
Ranker.rank.__signature__ = inspect.signature(rank).replace(  # type: ignore[attr-defined]
    parameters=[
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
        *(each for each in inspect.signature(rank).parameters.values() if each.name not in _OF_A_MODEL),
    ]
)


@checked
def fit(
    items: Iterable[object],
    by: str | Criterion | None = None,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    query: str | None = None,
    context: str | None = None,
    column: Hashable | None = None,
    labels: GivenLabels | None = None,
    model: str | OpenModel = "default",
    reader_options: ReaderOptions | None = None,
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    options: Mapping[str, object] | None = None,
) -> Scale:
    """Fit a scale to items, which then scores any others: `rank(items, …)` is `fit(items, …).rank(items)`.

    Parameters
    ----------
    items
        As in `rank`; or tasks, which have criteria of their own: of several, pooled by the method, one scale is made.
    by, comparative, poles, category, query, context, column, labels, model, reader_options, method, templates, options
        As in `rank`.

    Returns
    -------
    Scale
        Its `score(new_items)` gives numbers on the same scale, its `rank(items)` a ranking; `save` writes it to a file
        that `Scale.load` reads. A method that compares the items of a list with each other makes a scale of these items
        alone.
    """
    check_kind("by", by, (str, Criterion, type(None)), "one phrase or Criterion")
    given = [items] if isinstance(items, Task) else items
    tasks = (
        tuple(item for item in given if isinstance(item, Task)) if isinstance(given, (list, tuple)) else ()
    )
    request = RankRequest(
        items=tasks if tasks and tasks == tuple(given) else rows_of_items(given, column),
        by=by,
        comparative=comparative,
        poles=poles,
        category=category,
        query=query,
        context=context,
        labels=labels,
        method=method,
        options=options or {},
        templates=templates or load_templates(),
    )
    _ = request.tasks, request.parsed_options  # errors are raised before a model is loaded
    names = members_of(model) if isinstance(model, str) else (model,)
    readers = [opened(name, reader_options) for name in names]
    fits = [request.fit(reader) for reader in readers]
    scale = fitted([one_scale(scales) for scales in fits], readers)
    _warn(each.ranking for each in (fits[0] if len(fits) == 1 else [scale]))
    return scale


@checked
def rank_tasks(
    tasks: Sequence[Task],
    model: str | OpenModel = "default",
    method: str = DEFAULT_METHOD,
    templates: Templates | None = None,
    *,
    reader_options: ReaderOptions | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> list[Ranking]:
    """Rank many tasks together, which shares model passes between them.

    Parameters
    ----------
    tasks
        The tasks, in any order.
    model, reader_options
        As in `rank`.
    method
        A method's name.
    templates
        The wording of the prompts; the packaged one if None.
    options
        The options of the method, by name.
    progress
        Called with the number of distinct tokens just read.

    Returns
    -------
    list of Ranking
        One for each task, in the order of the tasks. The `warnings` of each are also issued as a `CcrankWarning`.
    """
    for task in tasks:
        check_kind("each of tasks", task, Task, "a Task")
    request = RankRequest(
        items=tuple(tasks),
        method=method,
        options=options or {},
        templates=templates or load_templates(),
    )
    return _run(request, model, reader_options, progress)


def _run(
    request: RankRequest,
    model: str | OpenModel,
    reader_options: ReaderOptions | None,
    progress: Progress | None = None,
) -> list[Ranking]:
    _ = request.tasks, request.parsed_options  # errors are raised before a model is loaded
    names = members_of(model) if isinstance(model, str) else ()
    if len(names) > 1:
        # One after the other, so that memory is needed for the largest only.
        opening = (load(name, reader_options=reader_options).reader for name in names)
        rankings = combined([Verdict.of(request.run(reader, progress), reader) for reader in opening])
    else:
        rankings = request.run(opened(model, reader_options), progress)
    _warn(rankings)
    return rankings


def _warn(rankings: Iterable[Ranking | None]) -> None:
    """One warning for each ranking."""
    for ranking in rankings:
        if ranking is not None and ranking.warnings:
            _warn_caller(f"{ranking.task.id}: {'; '.join(ranking.warnings)}")


def _warn_caller(message: str) -> None:
    """Issue a warning at the line of the caller, the first one outside the package."""
    package = str(Path(__file__).parents[1])
    frame, depth = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, CcrankWarning, stacklevel=depth + 1)
