"""`ccrank label`: a session in the terminal that asks for the most informative labels."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from ccrank.cli import options as shared
from ccrank.cli.options import argument, flag
from ccrank.cli.screen import counted, err, out, say, spinner
from ccrank.errors import CcrankError
from ccrank.reader_options import SERVER_PREFIX
from ccrank.util.text import one_line

if TYPE_CHECKING:
    from ccrank.labels import LabelRow
    from ccrank.methods.labelled.annotate import Spent
    from ccrank.methods.labelled.session import Question, Session
    from ccrank.models.remote.chat import ChatModel
    from ccrank.ranking import Ranking

HELP = "d don't know, u undo, o show the order, q quit"
WORDING = {
    "grade": "\nHow much {name}, from 1 (lowest) to 5 (highest)?\n  {}",
    "pair": "\nWhich is higher in {name}?\n  1  {}\n  2  {}\n  =  about equal",
}
EXPECTED = {"grade": "expected a grade from 1 to 5", "pair": "expected 1, 2 or = (about equal)"}
SHOWN = 5
"""Items at the top and at the bottom that are shown after each answer."""


@dataclass(frozen=True, kw_only=True)
class AnnotatorFlags(shared.Flags, panel="Who answers"):
    annotator: str | None = flag(
        "Your name, kept with each answer, where several people label a list. openai:URL#NAME: a chat model behind a "
        "server answers in place of you, about pairs. Its key is taken from OPENAI_API_KEY."
    )
    calls: int = flag("With a chat model: maximal number of calls.", default=100, min=1)
    max_tokens: int | None = flag("With a chat model: maximal number of tokens, read and written.", min=1)
    present: str = flag(
        "With a chat model: ask about each pair in both orders (both), or once in a random order (random).",
        default="both",
    )


@dataclass(frozen=True, kw_only=True)
class LabelFlags(
    shared.CriterionFlags,
    shared.ItemFlags,
    AnnotatorFlags,
    shared.LoadedModelFlags,
    shared.ReaderFlags,
    shared.CacheFlags,
):
    items: list[str] | None = argument("The items; without any, they come from --file.")
    labels: Path = flag("The CSV file of labels; an existing one is continued.", default=Path("labels.csv"))
    kind: str = flag("What to ask for: grade, pair, or both in turn.", default="both")


@shared.takes_flags("items by labels kind annotator calls category poles file column model")
def label_command(flags: LabelFlags) -> None:
    """Label the most informative items, one question at a time.

    [bold]ccrank label --file requests.txt --by politeness --labels labels.csv[/bold]

    [bold]ccrank label --file requests.txt --by politeness --annotator openai:https://api.example.com/v1#NAME[/bold]

    Answer with a grade from 1 to 5, or with 1 or 2 for the higher item and = if both are about equal; d means that you
    do not know, u undoes the last answer (and asks before it undoes one of an earlier session), o shows the order,
    q quits. Every answer is saved at once; `ccrank rank --labels labels.csv` uses them.
    """
    if bool(flags.items) == (flags.file is not None):
        raise CcrankError("give the items as arguments or with --file; the answers come from the terminal")
    from ccrank.cli.commands.rank_output import check_target
    from ccrank.io import rows_of_items
    from ccrank.io.labelfiles import read_answers
    from ccrank.io.taskfiles import read_items
    from ccrank.request import RankRequest

    # The arguments are validated before any slow work.
    texts = flags.items or read_items(flags.file or "", flags.column)
    request = RankRequest(
        items=rows_of_items(texts),
        by=flags.by,
        comparative=flags.comparative,
        poles=flags.poles,
        category=flags.category,
    )
    check_target(flags.labels, "--labels", [] if flags.file is None else [flags.file])
    earlier = read_answers(flags.labels, texts) if flags.labels.exists() else []
    with spinner("starting"):
        from ccrank.api.asking import ask_about
        from ccrank.methods.labelled.lists import agreements
        from ccrank.methods.labelled.session import check_kind
        from ccrank.models.remote.chat import ChatModel

        # Before the model: an address may be wrong.
        name = (flags.annotator or "").strip()
        chat = ChatModel.open(name) if name.startswith(SERVER_PREFIX) else None
        kind = check_kind(flags.kind if chat is None else "pair")
    _ = request.task  # errors in the items are raised before the model is loaded
    reader = shared.open_reader(flags.model, flags.reader_options(), flags.cache)
    with spinner("reading the items"):
        name = name if chat is None else chat.name
        session = ask_about(request, reader, kind, earlier, annotator=name)
    if earlier:
        out().print(f"continuing with {counted(len(earlier), 'answer')} in {flags.labels}")
    if chat is not None:
        answer_all(session, chat, flags)
        show_order(session.ranking, SHOWN)
    else:
        out().print(HELP)
        converse(session, flags.labels)
    for entry in agreements(session.labels):
        names = " and ".join(entry["annotators"])
        out().print(f"{names} agree on {entry['agreement']:.0%} of {counted(entry['pairs'], 'pair')}")
    if len(session.labels):
        out().print(f"to rank with these labels: {rank_line(flags)}")


def answer_all(session: Session, chat: ChatModel, flags: LabelFlags) -> None:
    """Print what the answers may cost, then ask the chat model; each answer is stored before the next question."""
    from ccrank.io.labelfiles import write_labels
    from ccrank.methods.labelled.annotate import annotate, expected_tokens

    each = expected_tokens(session)
    bound = "" if flags.max_tokens is None else f", at most {flags.max_tokens:,}"
    say(
        f"asking {chat.name}: up to {counted(flags.calls, 'call')} of about {each:,} tokens, "
        f"together {flags.calls * each:,}{bound}"
    )
    with err().status("asking") as status:

        def stored(spent: Spent) -> None:
            write_labels(session.rows, flags.labels)
            status.update(f"{counted(spent.answers, 'answer')}, {spent.calls} of {flags.calls} calls")

        spent = annotate(
            session,
            chat,
            calls=flags.calls,
            tokens=flags.max_tokens,
            order=flags.present,  # type: ignore[arg-type]  # checked there
            after=stored,
        )
    out().print(
        f"{counted(spent.calls, 'call')}, {spent.tokens:,} tokens: {counted(spent.answers, 'answer')} "
        f"in {flags.labels}, which now has {counted(len(session.rows), 'row')}"
    )


def converse(session: Session, path: Path) -> None:
    """Ask until no question is left; each one is written to the file before the next question."""
    from ccrank.io.labelfiles import write_labels
    from ccrank.labels import ONE_VALUE

    console = out()
    announced = session.good_enough
    while (question := session.question()) is not None:
        items = (one_line(item, 400) for item in question.items)
        console.print(WORDING[question.kind].format(*items, name=session.start.task.criterion.name))
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
            console.print(f"{EXPECTED[question.kind]}; {HELP}")
            continue
        else:
            question.answer(value)
        write_labels(session.rows, path)
        show_order(session.ranking, SHOWN)
        if session.labels.teaches_nothing:
            console.print(ONE_VALUE)
        elif isfinite(session.right_pairs):
            share = f"about {session.right_pairs:.0%} of all pairs are likely in the right order"
            console.print(share, style="dim")
        if session.good_enough and not announced:
            announced = True
            console.print("good enough for most uses: q quits, further answers make it surer")
    else:
        every = (
            "item has an answer" if session.kind == "grade" else "pair has an answer, or follows from others"
        )
        console.print(f"no question is left: every {every}")
    console.print(f"{counted(len(session.rows), 'answer')} in {path}")


def rank_line(flags: LabelFlags) -> str:
    """The command that ranks the same items with the labels, for a shell."""
    given = {"--file": flags.file, "--column": flags.column, "--by": flags.by}
    given |= {"--comparative": flags.comparative, "--category": flags.category, "--labels": flags.labels}
    words = [str(word) for name, value in given.items() if value is not None for word in (name, value)]
    words += ["--poles", *flags.poles] if flags.poles else []
    words += ["--model", flags.model] if flags.model != "default" else []
    return shlex.join(["ccrank", "rank", *words, *(["--", *flags.items] if flags.items else ())])


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
    """A typed line; None at the end of the input."""
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip().lower() if line else None


def _value(question: Question, word: str) -> float | str | None:
    """The label that a typed answer stands for; None if it is not an answer."""
    if question.kind == "pair" or word == "d":
        return {"1": "first", "2": "second", "=": "equal", "d": "unknown"}.get(word)
    with suppress(ValueError):
        if 1 <= (grade := float(word)) <= 5:
            return grade
    return None
