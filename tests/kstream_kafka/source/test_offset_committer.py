"""commitAsync: what is asked, when it is sent, and what it never passes."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.errors import KafkaError
from kstream_kafka.source.offset_committer import OffsetCommitter, as_callback

from kstream.batch_time import Time
from kstream.offsets.offset_range import OffsetRange, TopicAndPartition
from tests.kstream_kafka.fakes import FakeClient

P = ("t", 0)


def batch(n: int) -> list[OffsetRange]:
    """Batch n reads ten records of one partition."""
    return [OffsetRange("t", 0, 10 * n, 10 * n + 10)]


class Run:
    """A committer with batches planned, and the client it sends by."""

    def __init__(self, *planned: int) -> None:
        self.client = FakeClient()
        self.committer = OffsetCommitter("g")
        self.unfinished: set[Time] = set()
        for n in planned:
            self.plan(n)

    def plan(self, n: int, *ranges: OffsetRange) -> None:
        self.unfinished.add(Time(n))
        self.committer.planned(Time(n), ranges or batch(n))

    def end(self, n: int) -> None:
        self.unfinished.discard(Time(n))
        self.committer.ended(self.unfinished)
        self.committer.send(self.client)

    @property
    def commits(self) -> list[Any]:
        return [offsets for _group, offsets in self.client.commits]


def test_KD6_a_commit_is_sent_when_its_batch_has_ended() -> None:
    run = Run(0)
    run.committer.ask(batch(0), None)
    run.committer.send(run.client)
    assert run.commits == []
    run.end(0)
    assert run.client.commits == [("g", {P: 10})]


def test_KD6_the_highest_end_of_each_partition_goes() -> None:
    run = Run(0, 1)
    run.committer.ask([*batch(1), *batch(0)], None)
    run.unfinished.clear()
    run.end(1)
    assert run.commits == [{P: 20}]


def test_a_commit_never_passes_the_lowest_unfinished_batch_and_follows_when_that_has_ended() -> None:
    run = Run(0, 1, 2)
    for n in (1, 2):
        run.committer.ask(batch(n), None)
        run.end(n)
    assert run.commits == []
    run.end(0)
    assert run.commits == [{P: 30}]


def test_nothing_is_sent_twice() -> None:
    run = Run(0)
    run.committer.ask(batch(0), None)
    run.end(0)
    run.committer.ask(batch(0), None)
    run.end(0)
    assert run.commits == [{P: 10}]


def test_a_failed_batch_holds_commits_back_for_good() -> None:
    run = Run(0, 1)
    run.committer.ask(batch(1), None)
    run.end(1)  # batch 0 has failed: it stays unfinished until a restart
    run.plan(2)
    run.committer.ask(batch(2), None)
    run.end(2)
    assert run.commits == []


def test_KD6_the_newest_callback_hears_of_every_commit() -> None:
    heard: list[Any] = []
    run = Run(0, 1)
    run.committer.ask(batch(0), lambda offsets, error: heard.append("old"))
    run.committer.ask(batch(1), lambda offsets, error: heard.append((offsets, error)))
    run.unfinished.clear()
    run.end(1)
    assert heard == [({TopicAndPartition("t", 0): 20}, None)]


def test_a_refused_commit_is_told_and_sent_again() -> None:
    heard: list[Any] = []
    run = Run(0, 1)
    run.client.commit_error = KafkaError("no")
    run.committer.ask(batch(0), lambda offsets, error: heard.append(str(error)))
    run.end(0)
    run.client.commit_error = None
    run.end(1)
    assert heard == ["no", "None"]
    assert run.commits == [{P: 10}, {P: 10}]


def test_a_callback_that_raises_harms_nobody() -> None:
    run = Run(0)
    run.committer.ask(batch(0), lambda offsets, error: 1 / 0)
    run.end(0)
    run.committer.finish(run.client, 0)
    assert run.commits == [{P: 10}]


def test_the_end_of_a_stream_sends_what_is_due() -> None:
    run = Run(0)
    run.committer.ended(set())
    run.committer.ask(batch(0), None)
    run.committer.finish(run.client, 1)
    assert run.commits == [{P: 10}]


def test_a_callback_may_be_a_function_or_javas_object() -> None:
    class Callback:
        def onComplete(self, offsets: Any, error: Any) -> str:
            return "heard"

    callback = as_callback(Callback())
    assert callback is not None and callback({}, None) == "heard"
    assert as_callback(None) is None
    with pytest.raises(TypeError, match="callback"):
        as_callback("no")


def test_an_async_callback_is_refused_because_nobody_would_await_it() -> None:
    async def callback(offsets: Any, error: Any) -> None: ...

    with pytest.raises(TypeError, match="commitAsync: callback is an async function"):
        as_callback(callback)


def test_one_commit_is_under_way_at_a_time_so_that_an_older_one_never_comes_last() -> None:
    run = Run(0, 1)
    answers: list[Any] = []
    run.client.commit = lambda group, offsets, on_done: (run.client.commits.append((group, dict(offsets))), answers.append(on_done))  # type: ignore[method-assign]
    for n in (0, 1):
        run.committer.ask(batch(n), None)
        run.end(n)
    assert run.commits == [{P: 10}]
    answers.pop()(KafkaError("late"))
    run.committer.send(run.client)
    answers.pop()(None)
    run.committer.send(run.client)
    assert run.commits == [{P: 10}, {P: 20}]


def test_commits_go_on_when_a_topic_was_created_again_and_its_offsets_begin_at_0() -> None:
    run = Run(7)
    run.committer.ask(batch(7), None)
    run.end(7)
    run.plan(8, OffsetRange("t", 0, 0, 4))
    run.committer.ask([OffsetRange("t", 0, 0, 4)], None)
    run.end(8)
    assert run.commits == [{P: 80}, {P: 4}]
