"""Failures of single members of a pool are set apart; a model that cannot be read fails the whole."""

from __future__ import annotations

import pytest

from ccrank.errors import CcrankError, UnavailableError, isolate_failures


def test_a_bad_member_is_set_apart():
    """The others get their results, and the reason is recorded."""

    def work(members):
        if 2 in members:
            raise CcrankError("two is bad")
        return [10 * member for member in members]

    failures: dict[int, str] = {}
    assert isolate_failures([1, 2, 3], work, failures) == [10, 30]
    assert failures == {2: "two is bad"}


def test_a_model_that_cannot_be_read_fails_the_whole():
    """The work is tried once, no member is blamed, and the error is raised."""
    tried = []

    def work(members):
        tried.append(members)
        raise UnavailableError("the server is gone")

    failures: dict[int, str] = {}
    with pytest.raises(UnavailableError):
        isolate_failures([1, 2, 3], work, failures)
    assert (tried, failures) == ([[1, 2, 3]], {})
