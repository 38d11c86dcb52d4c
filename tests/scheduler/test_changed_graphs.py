"""A restart with other streams than before: named ones keep their data wherever they stand, and none is left behind unsaid."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kstream.errors import ConfigurationError, StreamVanishedError
from tests.harness import INTERVAL, START, Driver, LogInput, World, mapped

Named = list[str | None]


def graph(*names: str | None, logs: dict[str | None, list[int]]) -> Callable[..., None]:
    """A build for Driver: one input a name in this order, numbered from 1 (the driver makes one of its own first), each with a log."""

    def build(host: object, driver: Driver) -> None:
        for name in names:
            stream = LogInput(host, logs.setdefault(name, []))
            if name is not None:
                stream.setName(name)
            driver.output(mapped(stream))

    return build


def drive(world: World, build: Callable[..., None], conf: dict[str, str] | None = None) -> Driver:
    return Driver(world, conf, build=build).start()


def test_named_streams_go_on_where_they_were_in_whatever_order_they_are_made(caplog: pytest.LogCaptureFixture) -> None:
    world, logs = World(), {"a": [1, 2, 3], "b": [10, 20]}
    first = drive(world, graph("a", "b", logs=logs))
    first.tick()
    first.stop()
    logs["a"].append(4)
    logs["b"].append(30)
    with caplog.at_level(logging.WARNING, "kstream"):
        again = drive(world, graph("new", "b", "a", logs={**logs, "new": [7]}))
    again.tick()
    again.stop()
    assert [a.records for a in world.attempts] == [(1, 2, 3), (10, 20), (7,), (30,), (4,)]
    for line in ("stream 'a': continues, by name (it was stream 1)", "stream 'new': is new"):
        assert line in caplog.text


def test_a_pending_batch_of_a_graph_in_another_order_runs_again_with_its_own_data() -> None:
    world, logs = World(), {"a": [1], "b": [10]}
    first = Driver(world, build=graph("a", "b", logs=logs))
    first.before_job = lambda _time: (_ for _ in ()).throw(ValueError("boom"))
    first.start()
    first.tick()
    first.stop()
    logs["a"].append(2)
    again = drive(world, graph("b", "a", logs=logs))
    world.wait(lambda: again.listener.completed())
    again.tick()
    again.stop()
    assert [(a.time, a.records) for a in world.attempts if a.finished] == [
        (START + INTERVAL, (10,)), (START + INTERVAL, (1,)), (START + 2 * INTERVAL, ()), (START + 2 * INTERVAL, (2,)),
    ]  # fmt: skip
    (info, _) = [e.batchInfo() for e in again.listener.named("onBatchCompleted")]
    assert {n: i.numRecords for n, i in info.streamIdToInputInfo().items()} == {1: 1, 2: 1}


def test_streams_without_names_are_bound_by_their_position_and_may_be_named_later() -> None:
    world, logs = World(), {None: [1, 2]}
    first = drive(world, graph(None, logs=logs))
    first.tick()
    first.stop()
    logs[None].append(3)
    second = drive(world, graph("a", logs={"a": logs[None]}))
    second.tick()
    second.stop()
    logs[None].append(4)
    third = drive(world, graph("front", "a", logs={"front": [], "a": logs[None]}))
    third.tick()
    third.stop()
    assert [a.records for a in world.attempts] == [(1, 2), (3,), (), (4,)]


@pytest.mark.parametrize("names", [("a",), ("a", None), ("a", "renamed")], ids=str)
def test_a_stream_with_stored_offsets_that_is_gone_is_an_error_that_names_it(names: Named) -> None:
    world, logs = World(), {"a": [1], "b": [10]}
    first = drive(world, graph("a", "b", logs=logs))
    first.tick()
    with pytest.raises(StreamVanishedError, match="dropped:b") as caught:
        drive(world, graph(*names, logs=logs))
    assert caught.value.streams == ["b"]
    first.tick()  # a mistake in the new job has not fenced the one that runs
    first.stop()
    assert not first.fenced and "setName" in str(caught.value)


def test_a_stream_that_feeds_no_output_any_more_is_gone_too() -> None:
    world, logs = World(), {"a": [1], "b": [10]}
    drive(world, graph("a", "b", logs=logs)).stop()

    def build(host: object, driver: Driver) -> None:
        driver.output(LogInput(host, logs["a"]).setName("a"))
        LogInput(host, logs["b"]).setName("b")

    with pytest.raises(StreamVanishedError, match="feed no output"):
        drive(world, build)


@pytest.mark.parametrize(("gone", "allow"), [("b", "dropped:b"), (None, "dropped:2"), ("b", "dropped:x, dropped:b")])
def test_what_may_be_dropped_is_dropped_and_said(gone: str | None, allow: str, caplog: pytest.LogCaptureFixture) -> None:
    world, logs = World(), {"a": [1], gone: [10]}
    first = drive(world, graph("a", gone, logs=logs))
    first.tick()
    first.stop()
    with caplog.at_level(logging.WARNING, "kstream"):
        again = drive(world, graph("a", logs=logs), {"spark.streaming.kstream.recovery.allow": allow})
    again.tick()
    again.stop()
    assert "its offsets are dropped" in caplog.text
    drive(world, graph("a", logs=logs)).stop()  # once is enough: the plans since then know nothing of it


def test_two_streams_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two input streams are named 'a'"):
        drive(World(), graph("a", "a", logs={}))


@pytest.mark.parametrize("name", ["", "a,b"])
def test_a_name_is_some_text_without_commas(name: str) -> None:
    with pytest.raises(ValueError, match="without commas"):
        Driver(World()).input.setName(name)


def test_the_inputs_hear_of_the_restart_once_however_many_outputs_they_feed() -> None:
    """Spark behaviour CP9."""

    def build(_host: object, driver: Driver) -> None:
        for _ in range(3):
            driver.output(mapped(driver.input))

    world = World()
    first = Driver(world, build=build).start()
    first.tick(1)
    first.stop()
    again = Driver(world, build=build)
    assert again.input.calls == []
    again.start()
    again.stop()
    assert (first.input.calls.count("restored"), again.input.calls.count("restored")) == (0, 1)
