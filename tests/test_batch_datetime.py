"""BatchTime: the datetime that functions of users get. It is that of pyspark, with exact milliseconds."""

from __future__ import annotations

import copy
import os
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark import SparkContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from kstream import BatchTime, Time
from tests.streams import Stream

HALF_PAST_TWO, AN_HOUR_LATER = Time(1_792_888_200_123), Time(1_792_888_200_123 + 3_600_000)
"""Both are 02:30 on 2026-10-25 in Berlin: the clocks are set back at 03:00."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def both() -> tuple[BatchTime, BatchTime]:
    return HALF_PAST_TWO.to_datetime(), AN_HOUR_LATER.to_datetime()


@pytest.mark.usefixtures("berlin")
def test_two_batches_an_hour_apart_differ_in_the_hour_that_local_time_repeats() -> None:
    first, second = both()
    assert str(first) == str(second) == "2026-10-25 02:30:00.123000"
    assert second.milliseconds - first.milliseconds == 3_600_000
    assert second.timestamp() - first.timestamp() == 3600
    assert second.utc - first.utc == timedelta(hours=1)
    assert (first.fold, second.fold) == (0, 1)
    assert [str(t.utc) for t in both()] == ["2026-10-25 00:30:00.123000+00:00", "2026-10-25 01:30:00.123000+00:00"]
    assert [time.mktime(t.timetuple()) for t in both()] == [first.milliseconds // 1000, second.milliseconds // 1000]
    assert [str(t.astimezone(ZoneInfo("Asia/Tokyo"))) for t in both()] == [
        "2026-10-25 09:30:00.123000+09:00",
        "2026-10-25 10:30:00.123000+09:00",
    ]


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("hours", range(-30, 31))
@pytest.mark.parametrize("changed", ["2026-03-29T01:00:00+00:00", "2026-10-25T01:00:00+00:00"])
def test_the_time_of_a_datetime_is_exact_around_both_changes_of_the_clocks(changed: str, hours: int) -> None:
    begun = Time.of(datetime.fromisoformat(changed) + timedelta(hours=hours, milliseconds=7))
    found = begun.to_datetime()
    plain = datetime.fromtimestamp(begun.milliseconds // 1000).replace(microsecond=7000)
    assert found == plain and str(found) == str(plain) and found.fold == plain.fold
    assert Time.of(found) == Time.of(found.utc) == Time.of(plain) == begun


@pytest.mark.usefixtures("berlin")
def test_it_compares_hashes_and_prints_as_the_datetime_of_pyspark() -> None:
    batch, plain = HALF_PAST_TWO.to_datetime(), datetime(2026, 10, 25, 2, 30, 0, 123000)
    assert isinstance(batch, datetime)
    assert (batch == plain, hash(batch) == hash(plain), {plain: 1}[batch]) == (True, True, 1)
    assert (str(batch), f"{batch:%H:%M}", batch.isoformat()) == (str(plain), "02:30", plain.isoformat())
    assert batch < datetime(2026, 10, 26) and batch - datetime(2026, 10, 25) == timedelta(hours=2, minutes=30, milliseconds=123)


@pytest.mark.usefixtures("berlin")
def test_what_is_computed_from_it_is_a_plain_datetime_that_names_no_batch() -> None:
    batch = AN_HOUR_LATER.to_datetime()
    minute = timedelta(minutes=1)
    computed: list[Any] = [batch + minute, minute + batch, batch - minute, batch.replace(hour=7), batch.utc, batch.astimezone()]
    computed += [BatchTime.now(), BatchTime.combine(batch.date(), batch.time()), BatchTime.fromtimestamp(0), BatchTime(2026, 1, 1)]
    assert {type(value) for value in computed} == {datetime}
    assert computed[0] == datetime(2026, 10, 25, 2, 31, 0, 123000) and batch.replace(hour=7) == datetime(2026, 10, 25, 7, 30, 0, 123000)
    assert batch.replace(microsecond=0).timestamp() == AN_HOUR_LATER.milliseconds // 1000  # the fold is kept


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_copies_and_pickles_are_the_same_batch(protocol: int) -> None:
    for batch in both():
        copies = [copy.copy(batch), copy.deepcopy(batch), cloudpickle.loads(cloudpickle.dumps(batch))]
        for found in [*copies, pickle.loads(pickle.dumps(batch, protocol))]:
            assert type(found) is BatchTime
            assert (found, found.milliseconds, found.fold, str(found)) == (batch, batch.milliseconds, batch.fold, str(batch))


@pytest.mark.usefixtures("berlin")
def test_in_a_process_of_another_zone_it_has_the_drivers_local_time_and_the_same_milliseconds() -> None:
    """As a worker whose container has another TZ."""
    read = "import pickle, sys; t = pickle.load(sys.stdin.buffer); print(t, t.milliseconds, t.timestamp(), t.utc, sep='|')"
    environment = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run(
        [sys.executable, "-c", read], input=pickle.dumps(AN_HOUR_LATER.to_datetime()), env=environment, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == (
        f"2026-10-25 02:30:00.123000|{AN_HOUR_LATER.milliseconds}|{AN_HOUR_LATER.milliseconds / 1000}|2026-10-25 01:30:00.123000+00:00"
    )


@pytest.mark.usefixtures("berlin")
def test_sqlite_stores_it_as_a_datetime() -> None:
    with sqlite3.connect(":memory:") as database:
        ((stored,),) = database.execute("select ?", (HALF_PAST_TWO.to_datetime(),)).fetchall()
    assert stored == "2026-10-25 02:30:00.123000"


def test_functions_of_the_driver_and_of_workers_get_it(sc: SparkContext) -> None:
    seen: list[tuple[Any, Any]] = []
    stream = Stream(sc)
    source = stream.ssc.queueStream([[1]])
    stamped = source.transform(lambda at, rdd: rdd.map(lambda n, at=at: (n, type(at).__name__, at.milliseconds)))
    stamped.foreachRDD(lambda at, rdd: seen.append((at, rdd.collect())))
    stream.start()
    stream.tick()
    stream.stop()
    ((at, records),) = seen
    assert type(at) is BatchTime and at.tzinfo is None and at.milliseconds == stream.counter.completed[0]
    assert records == [(1, "BatchTime", at.milliseconds)]


def milliseconds_in_spark_sql(frame: DataFrame) -> list[int]:
    return [row[0] for row in frame.selectExpr("unix_millis(at)").collect()]


@pytest.mark.usefixtures("berlin")
def test_spark_sql_takes_it_as_a_timestamp(sc: SparkContext) -> None:
    rows = [(batch,) for batch in both()]
    frames = [SparkSession(sc).createDataFrame(rows, schema) for schema in (["at"], "at timestamp")]
    assert [milliseconds_in_spark_sql(frame) for frame in frames] == [[batch.milliseconds for batch in both()]] * 2


def test_spark_sql_takes_it_as_a_timestamp_also_from_workers(sc: SparkContext) -> None:
    """The workers are in the zone in which the tests were started."""
    session, batches = SparkSession(sc), both()
    rows = sc.parallelize([0, 1], 1).map(lambda n: (batches[n],))
    frames = [session.createDataFrame(rows, schema) for schema in (["at"], "at timestamp")]
    assert [milliseconds_in_spark_sql(frame) for frame in frames] == [[batch.milliseconds for batch in batches]] * 2


def test_a_time_with_a_zone_is_the_moment_that_it_names() -> None:
    assert Time.of(datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)) == Time(1000)
