"""Whether corrections help: the best drags and right answers, replayed on short lists with gold.

python -m studies.labels.corrections read ARRAYS --half choose       # needs the models; one .npz for each list
python -m studies.labels.corrections drags ARRAYS --half choose      # 1, 3 and 5 best drags, against the item alone
python -m studies.labels.corrections answers ARRAYS --half choose    # τ after each right answer of a session of pairs

The lists are those of `short_lists.py`: half of Everyday (names), and texts of four text criteria. A drag is the one of
all that raises τ most in the order that is shown; the item is put between the neighbours that it then has, as the page
says it. "Passed items" is what the page said before: the item is above, or below, those that it passed (six at most)
and its new neighbour, and every score follows the posterior mean.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ccrank.labels import Labels
from ccrank.methods.labelled import settled
from ccrank.methods.labelled.fit import fit
from ccrank.methods.labelled.observations import observations_of
from ccrank.methods.labelled.prior import Kernel, grid
from ccrank.metrics.order import tau_b
from studies.labels.asked import higher_first, session_of
from studies.labels.lists import LongList
from studies.labels.short_lists import load, read

DRAGS, SHOWN = 5, (1, 3, 5)
MAX_PASSED = 6
ANSWERS = 30
Move = tuple[int | None, int, int | None]
"""The neighbour above, the item and the neighbour below."""


class Replayed:
    """A list and the fits to what is said about it."""

    def __init__(self, one: LongList) -> None:
        self.one, self.names = one, [str(place) for place in range(len(one.values))]
        kernel = Kernel([(one.slot, one.item)])
        self.products = kernel.products(np.arange(len(self.names)))
        self.start = order_of(one.auto)

    def scores(self, labels: Labels, settle: bool = True) -> np.ndarray:
        """The scores by these labels: those that users get, or the posterior means."""
        seen = observations_of([labels], [self.names])
        fitted = fit(self.one.auto, self.products, seen, grid(self.one.written))
        if not settle:
            return fitted.mean
        draws = fitted.draws(np.random.default_rng(0))
        return settled.settle(self.one.auto, *fitted.moments, draws, labels, self.names).scores

    def tau(self, order: Sequence[int]) -> float:
        """τ of an order, best first."""
        scores = np.empty(len(order))
        scores[list(order)] = -np.arange(len(order))
        return tau_b(scores, self.one.values)

    def best_drag(self, order: list[int]) -> tuple[int, list[int]] | None:
        """The item whose move raises τ most, and the order after it; None if no move raises it."""
        best, found = self.tau(order), None
        for item in order:
            rest = [other for other in order if other != item]
            for place in range(len(order)):
                after = [*rest[:place], item, *rest[place:]]
                if (tau := self.tau(after)) > best + 1e-9:
                    best, found = tau, (item, after)
        return found


def order_of(scores: np.ndarray) -> list[int]:
    """Items, best first."""
    return np.argsort(-scores, kind="stable").tolist()


def plain(case: Replayed) -> list[float]:
    """τ after each drag if the item moves and nothing else does."""
    order, taus = case.start, [case.tau(case.start)]
    for _ in range(DRAGS):
        order = (case.best_drag(order) or (0, order))[1]
        taus.append(case.tau(order))
    return taus


def passed(case: Replayed) -> list[float]:
    """τ after each drag if it says that the item is above or below those that it passed."""
    order, taus = case.start, [case.tau(case.start)]
    said: list[tuple[int, tuple[int, int]]] = []
    for _ in range(DRAGS):
        if drag := case.best_drag(order):
            item, after = drag
            old, new = order.index(item), after.index(item)
            if new < old:
                added = [(item, low) for low in after[new + 1 : old + 1][:MAX_PASSED]]
                added += [(after[new - 1], item)] if new else []
            else:
                added = [(high, item) for high in after[old:new][-MAX_PASSED:]]
                added += [(item, after[new + 1])] if new + 1 < len(after) else []
            again = {frozenset(pair) for pair in added}
            said = [(about, pair) for about, pair in said if about != item and frozenset(pair) not in again]
            said += [(item, pair) for pair in added]
            pairs = tuple((str(high), str(low)) for _, (high, low) in said)
            order = order_of(case.scores(Labels(pairs=pairs), settle=False))
        taus.append(case.tau(order))
    return taus


def as_shown(case: Replayed) -> tuple[list[float], int, int]:
    """τ after each drag as the page has it; how often the item did not stay, and pairs of others that changed."""
    order, taus = case.start, [case.tau(case.start)]
    moves: list[Move] = []
    left = changed = 0
    for _ in range(DRAGS):
        if drag := case.best_drag(order):
            item, after = drag
            place = {other: number for number, other in enumerate(after)}
            moves = [kept for move in moves if move[1] != item and (kept := still_seen(move, place))]
            at = place[item]
            above, below = after[at - 1] if at else None, after[at + 1] if at + 1 < len(after) else None
            moves.append((above, item, below))
            order = order_of(case.scores(labels_of(moves)))
            left += order.index(item) != at
            others = [other for other in after if other != item]
            where = np.array([order.index(other) for other in others])
            changed += int(np.sum(np.triu(where[:, None] > where, 1)))
        taus.append(case.tau(order))
    return taus, left, changed


def still_seen(move: Move, place: dict[int, int]) -> Move | None:
    """What an earlier move says as far as the order that is shown now agrees."""
    above, item, below = move
    above = above if above is not None and place[above] < place[item] else None
    below = below if below is not None and place[item] < place[below] else None
    return None if above is None and below is None else (above, item, below)


def labels_of(moves: Sequence[Move]) -> Labels:
    """Moves as the page sends them."""
    entries = []
    for above, item, below in moves:
        entries += [] if above is None else [[str(item), "below", str(above)]]
        entries += [] if below is None else [[str(item), "above", str(below)]]
    return Labels.parse({"moves": entries})


def print_drags(cases: Sequence[Replayed], thresholds: Sequence[float]) -> None:
    """Print mean τ after some drags, and in how many lists it is below, or above, that of the plain move."""
    alone = np.array([plain(case) for case in cases])
    print(f"{len(cases)} lists; mean τ without drags {alone[:, 0].mean():.3f}")

    def line(name: str, taus: np.ndarray, note: str = "") -> None:
        cells = [
            f"{taus[:, drags].mean():.3f} ({(taus[:, drags] < alone[:, drags] - 1e-9).sum()} worse, "
            f"{(taus[:, drags] > alone[:, drags] + 1e-9).sum()} better)"
            for drags in SHOWN
        ]
        print(f"| {name} | {' | '.join(cells)} | {note}", flush=True)

    line("the item alone", alone)
    line("passed items (before)", np.array([passed(case) for case in cases]))
    for threshold in thresholds:
        settled.MOVED = threshold  # type: ignore[misc]
        found = [as_shown(case) for case in cases]
        taus = np.array([taus for taus, _, _ in found])
        moved = f"{sum(left for _, left, _ in found)} moved on, {sum(pairs for *_, pairs in found)} pairs of others"
        line(f"page, threshold {threshold}", taus, moved)


def print_answers(lists: Sequence[LongList]) -> None:
    """Print mean τ after each right answer to a session's questions, and how sure it says it is."""
    curves, said, right, enough = [], [], [], []
    for one in lists:
        session, taus = session_of(one, "pair"), [tau_b(one.auto, one.values)]
        first = None
        while (question := session.question()) is not None and len(taus) <= 8 * len(one.values):
            question.answer(higher_first(one, *map(int, question.items))[1])
            taus.append(tau_b(session.ranking.scores, one.values))
            said.append(session.right_pairs)
            right.append((taus[-1] + 1) / 2)
            first = len(taus) - 1 if first is None and session.good_enough else first
        enough.append((first or len(taus) - 1, taus[first or -1]))
        curves.append(taus)
    most = max(map(len, curves))
    table = np.array([[*taus, *[taus[-1]] * (most - len(taus))] for taus in curves])
    steps, mean = np.diff(table, axis=1), table.mean(axis=0)
    pairs = np.mean([len(one.values) * (len(one.values) - 1) / 2 for one in lists])
    asked = np.mean([len(taus) - 1 for taus in curves])
    print(f"{len(lists)} lists of {pairs:.1f} pairs on average; {asked:.1f} questions")
    print(
        "mean τ: " + ", ".join(f"{answers}: {mean[answers]:.3f}" for answers in range(min(most, ANSWERS + 1)))
    )
    print(f"the mean falls at {np.flatnonzero(steps.mean(axis=0) < -1e-9) + 1}; after the first answer τ falls in "
          f"{(steps[:, 0] < -1e-9).sum()} lists; of all answers {(steps < -1e-9).sum()} lower τ of a list; "
          f"{sum(taus[-1] < 1 - 1e-9 for taus in curves)} lists end below 1")  # fmt: skip
    print("good enough after {:.1f} answers, at τ {:.3f}".format(*np.mean(enough, axis=0)))
    known = np.array(said)
    for low, high in ((0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 0.95), (0.95, 1.0)):
        within = (known >= low) & (known < high)
        if within.any():
            print(
                f"said {known[within].mean():.3f}, right {np.array(right)[within].mean():.3f} ({within.sum()} answers)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=("read", "drags", "answers"))
    parser.add_argument("arrays", type=Path, help="folder of the lists' arrays")
    parser.add_argument("--half", choices=("choose", "report"), default="choose")
    parser.add_argument("--model", default="default")
    parser.add_argument("--longest", type=int, default=30, help="items of the longest list")
    parser.add_argument("--thresholds", type=float, nargs="*", help="of drags: thresholds to try")
    options = parser.parse_args()
    if options.stage == "read":
        read(options.arrays, options.half, options.model)
        return
    lists = [one for one in load(options.arrays, options.half) if len(one.values) <= options.longest]
    if options.stage == "drags":
        print_drags([Replayed(one) for one in lists], options.thresholds or [settled.MOVED])
    else:
        print_answers(lists)


if __name__ == "__main__":
    main()
