"""Errors carry facts, say what they say, and survive pickling."""

from __future__ import annotations

import pickle

import pytest

from kstream import errors
from kstream.errors import KStreamError, signal_name


def all_errors() -> list[type[KStreamError]]:
    found: list[type[KStreamError]] = [KStreamError]
    for known in found:
        found.extend(known.__subclasses__())
    return [e for e in found if e.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_with_its_facts(kind: type[KStreamError]) -> None:
    again = pickle.loads(pickle.dumps(kind("it broke", path="/x", time=5)))
    assert type(again) is kind
    assert (str(again), again.facts, again.path, again.time) == ("it broke", {"path": "/x", "time": 5}, "/x", 5)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_in_the_tree_of_the_docstring(kind: type[KStreamError]) -> None:
    assert f" {kind.__name__}" in str(errors.__doc__) or str(errors.__doc__).count(kind.__name__) == 1


def test_only_what_may_go_better_later_is_retriable() -> None:
    retriable = {kind.__name__ for kind in all_errors() if kind.retriable}
    assert retriable == {
        "PlanFailedError",
        "StorageError",
        "RpcUnreachableError",
        "NotEnoughCoresError",
        "PortTakenError",
        "TransientError",
    }


def test_a_signal_without_a_name_has_its_number() -> None:
    assert signal_name(9) == "SIGKILL" and signal_name(35) == "signal 35"
