"""The stand-in for a reader is one: it cannot drift from what methods call."""

from __future__ import annotations

import inspect
import typing

import pytest
from fake import FakeReader, random_logits
from tiny import tiny_reader

from ccrank.models import ReaderLike
from ccrank.models.reader_like import LoadedLike, PromptTokenizerLike

READERS = {"reader": tiny_reader, "fake": lambda: FakeReader(random_logits(0))}


def members(protocol: type) -> dict[str, object]:
    """What a protocol asks for, by name."""
    return {name: value for name, value in vars(protocol).items() if not name.startswith("_")}


def check_signatures(protocol: type, one: object) -> None:
    """Every method of the protocol is there with the same parameters, kinds, defaults and types."""
    for name, wanted in members(protocol).items():
        found = getattr(one, name)
        if inspect.isfunction(wanted):
            theirs = list(inspect.signature(wanted).parameters.values())[1:]  # without self
            own = list(inspect.signature(found).parameters.values())
            assert [(each.name, each.kind, each.default) for each in own] == [
                (each.name, each.kind, each.default) for each in theirs
            ], name
            hints = typing.get_type_hints(wanted)
            assert {each: typing.get_type_hints(found)[each] for each in hints if each != "return"} == {
                each: hints[each] for each in hints if each != "return"
            }, name


@pytest.mark.parametrize("kind", READERS)
def test_readers_and_stand_ins_have_the_same_form(kind: str) -> None:
    """A `Reader` and the tests' `FakeReader` have all that `ReaderLike` names, signature by signature."""
    one = READERS[kind]()
    assert isinstance(one, ReaderLike)
    check_signatures(ReaderLike, one)
    check_signatures(PromptTokenizerLike, one.prompt_tokenizer)
    for name in members(LoadedLike):
        assert isinstance(getattr(one.loaded, name), tuple)
    assert isinstance(one.name, str)
    assert one.form in ("causal", "masked", "encoder_decoder")
    assert isinstance(one.depth, int)
    assert (one.gives_states, one.behind_server) == (kind == "reader", False)
    assert isinstance(one.width, int)


def test_a_stand_in_that_drifts_is_noticed() -> None:
    """A missing member, a parameter of another name or default: each is found."""

    class Lacking:
        name = "lacking"

    class Renamed(FakeReader):
        def read(
            self, prompts, answers=None, layers=(), *, items=False, log_probabilities=False, progress=None
        ):
            raise NotImplementedError

    assert not isinstance(Lacking(), ReaderLike)
    with pytest.raises(AssertionError):
        check_signatures(ReaderLike, Renamed(random_logits(0)))
