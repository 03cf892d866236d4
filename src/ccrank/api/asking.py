"""Sessions of questions about the items of a list: `ask`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccrank.api.arguments import checked, opened
from ccrank.io import rows_of_items
from ccrank.labels import LabelRow
from ccrank.methods.labelfree.rankers import label_free_states
from ccrank.methods.labelled.session import Session, SessionKind
from ccrank.models.prompter import Prompter
from ccrank.models.reading import Progress
from ccrank.models.remote import OpenModel
from ccrank.prompts import Templates, load_templates
from ccrank.ranking import Ranking
from ccrank.reader_options import ReaderOptions
from ccrank.request import DEFAULT_METHOD, PreparedTask, RankRequest
from ccrank.task import Criterion


@checked
def ask(
    items: Iterable[str],
    by: str | Criterion,
    *,
    comparative: str | None = None,
    poles: tuple[str, str] | None = None,
    category: str | None = None,
    kind: SessionKind = "both",
    answers: Sequence[LabelRow] = (),
    annotator: str = "",
    model: str | OpenModel = "default",
    reader_options: ReaderOptions | None = None,
    templates: Templates | None = None,
    progress: Progress | None = None,
) -> Session:
    """Questions about items whose answers teach most: `for question in ask(...): question.answer(...)`.

    Parameters
    ----------
    items, by, comparative, poles, category, model, reader_options, templates
        As in `rank`.
    kind
        grade: an item's value, such as a grade from 1 to 5; pair: which of two items is higher; both, by turns.
    answers
        Answers of an earlier session, its `rows`.
    annotator
        Who answers, where several people label a list.
    progress
        As in `rank_tasks`.

    Returns
    -------
    Session
        An iterator over questions, with the `ranking` so far, the `labels`, and `undo`.
    """
    request = RankRequest(
        items=rows_of_items(items),
        by=by,
        comparative=comparative,
        poles=poles,
        category=category,
        templates=templates or load_templates(),
    )
    _ = request.task  # errors are raised before a model is loaded
    return ask_about(request, opened(model, reader_options), kind, answers, progress, annotator)


def ask_about(
    request: RankRequest,
    reader: OpenModel,
    kind: SessionKind = "both",
    answers: Sequence[LabelRow] = (),
    progress: Progress | None = None,
    annotator: str = "",
) -> Session:
    """A session about the list of a request."""
    task = PreparedTask.of(request.task, reader).canonical
    answer, states = label_free_states(task, Prompter(reader, request.templates, progress))
    details = {**answer.details, "weights": dict(reader.loaded.weights)}
    how = (answer.consistency, answer.cost, details)
    start = Ranking(task, answer.scores, DEFAULT_METHOD, reader.name, True, *how)
    return Session(start, states, kind, answers, annotator)
