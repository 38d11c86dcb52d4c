"""Waiting for the brokers' answers."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest
from kstream_kafka.client.admin_requests import AdminRequests
from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.errors import BrokerUnreachableError


class Watch(ConnectionWatch):
    """Has nothing to say, but for `error` once it was asked `after` times."""

    def __init__(self, error: Exception | None = None, after: int = 0) -> None:
        self.asked_for, self.answers, self._error, self._after = 0, 0, error, after

    def on_request(self) -> None:
        pass

    def on_response(self) -> None:
        self.answers += 1

    def fatal_error(self) -> Any:
        self.asked_for += 1
        assert self.asked_for < 100, "it waits for ever"
        return self._error if self.asked_for >= self._after else None


@pytest.mark.parametrize("kind", [TimeoutError, FutureTimeoutError])
def test_a_question_that_raises_a_timeout_of_its_own_has_been_answered(kind: type[Exception]) -> None:
    """It was taken for the end of one look at the future, and the wait went on for ever."""

    def ask() -> Any:
        raise kind("no metadata in 5 s")

    watch = Watch()
    with pytest.raises(kind, match="no metadata in 5 s"):
        AdminRequests(watch, lambda: None, lambda: 0).run_blocking(ask)
    assert watch.answers == 0


def test_the_answer_is_returned_and_the_watch_hears_of_it() -> None:
    watch = Watch()
    assert AdminRequests(watch, lambda: None, lambda: 0).run_blocking(lambda: 7) == 7
    assert watch.answers == 1


def test_while_it_waits_the_client_is_polled_and_a_verdict_ends_the_wait() -> None:
    polls: list[int] = []
    watch = Watch(BrokerUnreachableError("h:1", 5), after=3)
    with pytest.raises(BrokerUnreachableError):
        AdminRequests(watch, lambda: polls.append(1), lambda: 0).await_result(Future())
    assert len(polls) == 3
