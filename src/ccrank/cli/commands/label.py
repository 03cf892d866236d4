"""`ccrank label`: a session in the terminal that asks for the most informative labels."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccrank.cli import options as shared
from ccrank.cli.commands.label_annotator import AnnotatorFlags, answer_all
from ccrank.cli.screen import counted, out, spinner
from ccrank.errors import CcrankError
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from ccrank.labels import LabelRow
    from ccrank.methods.labelled.session import Question, Session
    from ccrank.ranking import Ranking

HELP = "d don't know, u undo, o show the order, q quit"
SHOWN_FIRST = (
    "items",
    "by",
    "labels",
    "kind",
    "annotator",
    "calls",
    "category",
    "poles",
    "file",
    "column",
    "model",
)
ALL_GRADED = "no question is left: every item has a grade"
SHOWN = 5
"""Items at the top and at the bottom that are shown after each answer."""


@shared.with_flags
def label_command(
    items: Annotated[
        list[str] | None, typer.Argument(help="The items; without any, they come from --file.")
    ] = None,
    *,
    labels: Annotated[
        Path, typer.Option("--labels", help="The CSV file of labels; an existing one is continued.")
    ] = Path("labels.csv"),
    kind: Annotated[
        str, typer.Option("--kind", help="What to ask for: grade, pair, or both in turn.")
    ] = "both",
    criterion: shared.CriterionFlags,
    source: shared.ItemFlags,
    answering: AnnotatorFlags,
    model: shared.LoadedModelName = "default",
    reader_flags: shared.ReaderFlags,
    cache: shared.UseCache = True,
    help_all: shared.HelpAll = False,
) -> None:
    """Label the most informative items, one question at a time.

    [bold]ccrank label --file requests.txt --by politeness --labels labels.csv[/bold]

    [bold]ccrank label --file requests.txt --by politeness --annotator openai:https://api.example.com/v1#NAME[/bold]

    Answer with a grade from 1 to 5, or with 1 or 2 for the higher item and = if both are about equal; d means that you
    do not know, u undoes the last answer (and asks before it undoes one of an earlier session), o shows the order,
    q quits. Every answer is saved at once; `ccrank rank --labels labels.csv` uses them.
    """
    if bool(items) == (source.file is not None):
        raise CcrankError("give the items as arguments or with --file; the answers come from the terminal")
    from ccrank.cli.commands.rank_output import check_place
    from ccrank.io import rows_of_items
    from ccrank.io.labelfiles import read_answers
    from ccrank.io.taskfiles import read_items
    from ccrank.request import RankRequest

    # The arguments are validated before any slow work.
    texts = list(items) if items else read_items(source.file or "", source.column)
    request = RankRequest(items=rows_of_items(texts), **asdict(criterion))
    check_place(labels)
    earlier = read_answers(labels, texts) if labels.exists() else []
    with spinner("starting"):
        from ccrank.api.asking import ask_about
        from ccrank.methods.labelled.session import check_kind

        chat = answering.open()  # before the model: an address may be wrong
        asked = check_kind(kind if chat is None else "pair")
    _ = request.task  # mistakes in the items are said before the model is loaded
    reader = shared.open_reader(model, reader_flags.options(), cache)
    with spinner("reading the items"):
        name = (answering.annotator or "").strip() if chat is None else chat.name
        session = ask_about(request, reader, asked, earlier, annotator=name)
    if earlier:
        out().print(f"continuing with {counted(len(earlier), 'answer')} in {labels}")
    if chat is not None:
        answer_all(session, chat, answering, labels)
        show_order(session.ranking, SHOWN)
        return
    out().print(HELP)
    converse(session, labels)
    _show_agreements(session)
    if len(session.labels):
        out().print(
            f"to rank with these labels: {rank_line(texts if items else None, labels, criterion, source, model)}"
        )


def converse(session: Session, path: Path) -> None:
    """Ask until the answers settle the order; each one is written to the file before the next question."""
    from ccrank.io.labelfiles import write_labels
    from ccrank.labels import ONE_VALUE

    console = out()
    told = session.good_enough
    while (question := session.question()) is not None:
        console.print(_text(question, session))
        word = _read()
        if word in ("q", None):
            break
        if word == "o":
            show_order(session.ranking, None)
            continue
        if word == "u":
            if (last := _undo(session)) is None:
                continue
            console.print(f"undone: {_row_text(last)}")
        elif (value := _value(question, word)) is None:
            console.print(f"{_expected(question)}; {HELP}")
            continue
        else:
            question.answer(value)
        write_labels(session.rows, path)
        show_order(session.ranking, SHOWN)
        if session.labels.teaches_nothing:
            console.print(ONE_VALUE)
        elif isfinite(session.right_pairs):
            console.print(_sure(session), style="dim")
        if session.good_enough and not told:
            told = True
            console.print("good enough for most uses: q quits, further answers make it surer")
    else:
        console.print(
            "no question is left: the answers settle the order" if session.kind != "grade" else ALL_GRADED
        )
    console.print(f"{counted(len(session.rows), 'answer')} in {path}")


def _sure(session: Session) -> str:
    return f"about {session.right_pairs:.0%} of all pairs are likely in the right order"


def _show_agreements(session: Session) -> None:
    from ccrank.methods.labelled.annotators import agreements

    for found in agreements(session.labels):
        one, other = found.annotators
        out().print(f"{one} and {other} agree on {found.share:.0%} of {counted(found.shared, 'pair')}")


def rank_line(
    items: Sequence[str] | None,
    labels: Path,
    criterion: shared.CriterionFlags,
    source: shared.ItemFlags,
    model: str,
) -> str:
    """The command that ranks the same items with the labels, for a shell."""
    flags = {"--file": source.file, "--column": source.column, "--by": criterion.by}
    flags |= {"--comparative": criterion.comparative, "--category": criterion.category, "--labels": labels}
    words = [str(word) for name, value in flags.items() if value is not None for word in (name, value)]
    words += ["--poles", *criterion.poles] if criterion.poles else []
    words += ["--model", model] if model != "default" else []
    return shlex.join(["ccrank", "rank", *words, *(["--", *items] if items else ())])


def _undo(session: Session) -> LabelRow | None:
    """Take the last answer back, one of an earlier session only after a yes."""
    if not session.rows:
        out().print("nothing to undo")
        return None
    if (last := session.undo()) is not None:
        return last
    out().print(
        f"no answer of this session is left; undo one of an earlier session, {_row_text(session.rows[-1])}? (y or n)"
    )
    return session.undo(earlier=True) if _read() in ("y", "yes") else None


def _row_text(row: LabelRow) -> str:
    return ", ".join(one_line(cell) for cell in row if cell)


def show_order(ranking: Ranking, ends: int | None) -> None:
    """The order so far: all of it, or its top and bottom."""
    console, count = out(), len(ranking.items)
    doubt = ranking.uncertainty
    for rank, index in enumerate(ranking.order, start=1):
        if ends is not None and ends < rank <= count - ends:
            if rank == ends + 1:
                console.print("   …", style="dim")
            continue
        span = "" if doubt is None else f"  ({doubt.rank_low[index]}–{doubt.rank_high[index]})"
        console.print(f"{rank:>4}  {one_line(ranking.task.items[index], 60)}{span}", style="dim")
    if doubt is not None:
        width = float((doubt.rank_high - doubt.rank_low + 1).mean())
        console.print(f"80 % intervals span {width:.1f} of {count} ranks on average", style="dim")


def _read() -> str | None:
    """What is typed; None at the end of the input."""
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip().lower() if line else None


def _text(question: Question, session: Session) -> str:
    name = session.start.task.criterion.name
    if question.kind == "grade":
        return f"\nHow much {name}, from 1 (lowest) to 5 (highest)?\n  {one_line(question.items[0], 400)}"
    first, second = (one_line(item, 400) for item in question.items)
    return f"\nWhich is higher in {name}?\n  1  {first}\n  2  {second}\n  =  about equal"


def _expected(question: Question) -> str:
    return "expected a grade from 1 to 5" if question.kind == "grade" else "expected 1, 2 or = (about equal)"


def _value(question: Question, word: str) -> float | str | None:
    """What a typed answer means; None if nothing."""
    if word == "d":
        return "unknown"
    if question.kind == "pair":
        return {"1": "first", "2": "second", "=": "equal"}.get(word)
    try:
        number = float(word)
    except ValueError:
        return None
    return number if 1 <= number <= 5 else None
