"""Criterion and Task: what they refuse, and how they travel as JSON."""

from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ccrank.errors import CcrankError
from ccrank.task import Criterion, Task, normal_form, relevance_to

SIZE = Criterion("size")
words = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cf", "Z")), min_size=1, max_size=10).filter(
    lambda text: any(char.isprintable() and not char.isspace() for char in normal_form(text))
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def criteria(draw):
    poles = draw(st.none() | st.tuples(words, words).filter(lambda pair: pair[0] != pair[1]))
    return Criterion(draw(words), draw(st.none() | words), poles, draw(st.none() | words))


@st.composite
def tasks(draw):
    items = draw(st.lists(words, min_size=2, max_size=6, unique_by=normal_form))
    count = len(items)
    values = draw(st.none() | st.lists(numbers, min_size=count, max_size=count, unique=True).map(tuple))
    about = draw(st.dictionaries(words, words | numbers, max_size=2))
    return Task(draw(criteria()), tuple(items), draw(st.none() | st.text()), values, draw(words), about)


@given(tasks())
def test_json_round_trip(task):
    """A task written as JSON text and parsed again is the same task, notes included."""
    again = Task.parse(json.loads(json.dumps(task.to_json())))
    assert again == task
    assert dict(again.about) == dict(task.about)


@given(criteria())
def test_criterion_round_trip(criterion):
    """So is a criterion; and its phrases never lack a word."""
    assert Criterion.parse(json.loads(json.dumps(criterion.to_json()))) == criterion
    assert criterion.comparative_phrase
    assert criterion.kind


@given(st.lists(words, min_size=2, max_size=7, unique_by=normal_form), st.randoms(use_true_random=False))
def test_order_and_values_are_two_ways_to_say_one_thing(order, random):
    """Gold as an order, highest first, and as values derived from it give one task; `order` gives it back."""
    items = list(order)
    random.shuffle(items)
    by_order = Task.parse({"criterion": "size", "items": items, "order": order})
    values = [len(order) - 1 - order.index(item) for item in items]
    assert by_order == Task.parse({"criterion": "size", "items": items, "values": values})
    assert by_order.order == tuple(order)


@given(tasks())
def test_order_is_the_items_by_value(task):
    """`order` is a permutation of the items with decreasing values; None without gold."""
    if task.values is None:
        assert task.order is None
        return
    value = dict(zip(task.items, task.values, strict=True))
    assert sorted(task.order) == sorted(task.items)
    along = [value[item] for item in task.order]
    assert along == sorted(along, reverse=True)


@given(
    words, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.sampled_from(["", " ", "\t", "\n", "\u00a0"])
)
def test_unicode_and_white_space_do_not_make_two_items_of_one(text, form, space):
    """An item in another Unicode form, or with more white space around it, is a repeat of the same item."""
    twin = space + unicodedata.normalize(form, text) + space
    assume(normal_form(text) != "other")
    with pytest.raises(CcrankError, match=r"item 3 repeats item 1"):
        Task(SIZE, (text, "other", twin))


def test_inner_white_space_is_folded():
    """Two blanks inside count as one; case is significant."""
    with pytest.raises(CcrankError, match=r"item 2 repeats item 1: 'New  York'"):
        Task(SIZE, ("New York", "New  York"))
    assert Task(SIZE, ("us", "US")).items == ("us", "US")


@pytest.mark.parametrize(
    ("items", "cause"),
    [
        (("a",), "at least 2 items, got 1"),
        (("pizza, broccoli, candy",), "got 1; if it holds 3 items, give each one by itself"),
        ((), "at least 2 items, got 0"),
        (("a", ""), "item 2 is empty: ''"),
        (("a", " \t"), "item 2 is empty"),
        (("a", "\u200b"), "item 2 is empty"),
        (("a", 5), "item 2 is not text: 5"),
        (("a", None), "item 2 is not text: None"),
        (("a", "b", "a"), "item 3 repeats item 1: 'a'"),
    ],
)
def test_items_that_are_refused(items, cause):
    """The message names the task, the item by its place, and what it is."""
    with pytest.raises(CcrankError, match=f"task 'mine': .*{cause}"):
        Task(SIZE, items, id="mine")


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ((1,), "1 values for 2 items"),
        ((1, 1), "gold has a tie: 'a' and 'b' are both 1; drop one"),
        ((1, float("nan")), "the value of 'b' is not a finite number: nan"),
        ((float("inf"), 1), "the value of 'a' is not a finite number: inf"),
        ((1, "2"), "the value of 'b' is not a finite number: '2'"),
        ((True, 2), "the value of 'a' is not a finite number: True"),
        ("12", "values must be a list of numbers, got '12'"),
        (5, "values must be a list of numbers, got 5"),
    ],
)
def test_values_that_are_refused(values, cause):
    """The message names the item whose value is wrong, and the value."""
    with pytest.raises(CcrankError, match=f"task 'mine': {cause}"):
        Task(SIZE, ("a", "b"), values=values, id="mine")


@pytest.mark.parametrize(
    ("order", "cause"),
    [
        (["a"], "order lacks the item 'b'"),
        (["a", "b", "c"], "order names 'c', which is not among the items"),
        (["a", "b", "a"], "order names 'a' twice"),
        (["a", 3], "order has an entry that is not text: 3"),
        ("ab", "order must be a list of items, highest first, got 'ab'"),
    ],
)
def test_orders_that_are_refused(order, cause):
    """The message names the item that the order lacks, repeats or invents."""
    with pytest.raises(CcrankError, match=f"task 'mine': {cause}"):
        Task.parse({"id": "mine", "criterion": "size", "items": ["a", "b"], "order": order})


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"items": ["a", "b"]}, "has no 'criterion'"),
        ({"criterion": "size"}, "has no 'items'"),
        ({"criterion": "size", "items": "ab"}, "items must be a list of texts, got 'ab'"),
        ({"criterion": "size", "items": ["a", "b"], "item": 1}, r"unknown fields \['item'\]; known are"),
        (
            {"criterion": "size", "items": ["a", "b"], "values": [1, 2], "order": ["a", "b"]},
            "values and order are two ways to give the same; keep one",
        ),
        ({"criterion": "size", "items": ["a", "b"], "context": 4}, "context must be text, got 4"),
        ({"criterion": {"name": " "}, "items": ["a", "b"]}, "a criterion needs a name"),
        ({"criterion": {}, "items": ["a", "b"]}, "has no name"),
        ({"criterion": {"name": "x", "pole": 1}, "items": ["a", "b"]}, r"unknown fields \['pole'\]"),
        ({"criterion": 5, "items": ["a", "b"]}, "a criterion must be a name or an object with a name, got 5"),
    ],
)
def test_tasks_that_are_refused(fields, cause):
    """A JSON task with a field missing, unknown or of the wrong kind is refused by its id and that field."""
    with pytest.raises(CcrankError, match=f"task 'mine': .*{cause}"):
        Task.parse({"id": "mine", **fields})
    with pytest.raises(CcrankError, match="line-3: a task must be a JSON object, got 7"):
        Task.parse(7, default_id="line-3")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": 3},
        {"name": "size", "comparative": " "},
        {"name": "size", "category": 4},
        {"name": "size", "poles": "ab"},
        {"name": "size", "poles": ("small",)},
        {"name": "size", "poles": ("small", "")},
        {"name": "size", "poles": ("same", "same")},
    ],
)
def test_criteria_that_are_refused(fields):
    """The message contains the offending value."""
    wrong = list(fields.values())[-1]
    with pytest.raises(CcrankError) as caught:
        Criterion(**fields)
    assert repr(wrong) in str(caught.value)


def test_criterion_phrases():
    """Without a comparative the paper's own phrase is used, without a category the word item."""
    assert Criterion("size").comparative_phrase == "more in terms of size"
    assert Criterion("size").kind == "item"
    full = Criterion("size", "larger", ("small", "large"), "country")
    assert (full.comparative_phrase, full.kind) == ("larger", "country")
    assert Criterion.parse(full) is full
    assert Criterion.parse("size") == Criterion("size")


def test_long_values_are_shortened_in_messages():
    """A message does not repeat a whole review."""
    with pytest.raises(CcrankError) as caught:
        Task(SIZE, ("word " * 500, "word " * 500))
    assert len(str(caught.value)) < 150


DOCUMENTS = ("A gale warning.", "A recipe.", "Rain.")
SEARCH = {
    "id": "q1",
    "query": "storms",
    "items": list(DOCUMENTS),
    "item_ids": ["d1", "d2", "d3"],
    "values": [2.0, 0.0, 2.0],
    "first_stage": [3.5, 1.0, 2.0],
}


def test_a_query_is_the_criterion():
    """A task of a query has the criterion of relevance to it, grades with ties, and keeps all in JSON."""
    task = Task.parse(SEARCH)
    assert task == Task.of_query(
        "storms", DOCUMENTS, id="q1", values=(2, 0, 2), first_stage=(3.5, 1, 2), item_ids=("d1", "d2", "d3")
    )
    assert task.criterion == relevance_to("storms")
    assert task.criterion.poles == ("irrelevant", "relevant")
    assert task.to_json() == SEARCH
    assert Task.parse(task.to_json()) == task
    assert Task.parse({"query": "storms", "items": DOCUMENTS, "bm25": [1, 2, 3]}).first_stage == (
        1.0,
        2.0,
        3.0,
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"criterion": "size"}, "query and criterion are two ways to give the same; keep one"),
        ({"query": 7}, "query must be a question or keywords, got 7"),
        ({"query": "\u200b "}, "query must be a question or keywords"),
        ({"values": [1, 0]}, "2 values for 3 items; give one value per item"),
        ({"values": [1, 0, -1]}, "is -1; grades of relevance to a query are whole numbers"),
        ({"first_stage": [1, 0]}, "2 first_stage for 3 items"),
        ({"first_stage": [1, 0, "x"]}, "the first_stage of 'Rain.' is not a finite number: 'x'"),
        ({"bm25": [1, 2, 3]}, "first_stage and bm25 are two ways to give the same; keep one"),
        ({"item_ids": ["a", "b"]}, "item_ids must be a list of 3 texts"),
        ({"item_ids": ["a", "b", "c d"]}, "an item id is a text without white space, got 'c d'"),
        ({"item_ids": ["a", "b", "a"]}, "two items have the id 'a'"),
    ],
)
def test_wrong_tasks_of_queries_are_refused(changes, message):
    """The message has the value and the remedy."""
    with pytest.raises(CcrankError, match=message):
        Task.parse({**SEARCH, **changes})


def test_a_query_beside_another_criterion_is_refused():
    """In Python too: one of the two would be ignored."""
    with pytest.raises(CcrankError, match=r"it has a query and the criterion 'size'; .*Task\.of_query"):
        Task(Criterion("size"), DOCUMENTS, query="storms")


@pytest.mark.parametrize("field", ["name", "comparative", "category", "poles"])
def test_words_of_a_criterion_are_bounded(field: str):
    """A word of 300 characters is taken; a longer one, also one that NFKC makes longer, is refused with its length."""
    for text, fits in (("a" * 300, True), ("a" * 301, False), ("\ufdfa" * 17, False)):
        value = (text, "b") if field == "poles" else text
        fields = {"name": "size", field: value}
        if fits:
            assert Criterion(**fields)
        else:
            with pytest.raises(CcrankError, match=r"30\d characters"):
                Criterion(**fields)


def test_queries_are_bounded():
    """A query of 4,000 characters is taken and a longer one is refused."""
    assert Task.of_query("a" * 4000, ("b", "c")).query == "a" * 4000
    with pytest.raises(CcrankError, match="4,001 characters"):
        Task.of_query("a" * 4001, ("b", "c"))


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0323\uff9e"])
def test_texts_of_combining_marks_are_compared_in_linear_time(marks: str):
    """Marks that Unicode sorts one by one do not hold the interpreter for minutes; short runs keep their form."""
    start = time.thread_time()
    normal_form("a" + marks * 200_000)
    assert time.thread_time() - start < 5
    for count in (1, 10, 100):
        assert normal_form("a" + marks * count) == unicodedata.normalize("NFKC", "a" + marks * count)
