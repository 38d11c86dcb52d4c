"""One line a batch in the log: its words, its fields, and that a batch does not wait for it."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkContext

from kstream.batch import BatchInfo, InputFigures, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Milliseconds, Seconds, Time
from kstream.context.batch_lines import BatchLines, fields_of, line_of
from kstream.listener import StreamingListenerBatchCompleted
from tests.streams import Stream

AT = Time(round(time.mktime((2026, 11, 22, 11, 23, 0, 0, 0, -1)) * 1000))
KAFKA = {"description": "Kafka[t]", "endOffset": {"t": {"0": 15, "1": 7}}, "latestOffset": {"t": {"0": 32, "1": 7}}}


def batch(reason: str | None = None, late_ms: int = 0, end: bool = True, **facts: Any) -> BatchInfo:
    submitted = AT.milliseconds + late_ms
    inputs = {0: StreamInputInfo(0, 1000, facts), 1: StreamInputInfo(1, 5)}
    outputs = {0: OutputOperationInfo(AT, 0, "foreachRDD", "", submitted, submitted, reason)}
    return BatchInfo(AT, inputs, submitted, submitted + 5, submitted + 405 if end else None, outputs)


def line(info: BatchInfo) -> str:
    return line_of(fields_of(info), Seconds(1))


def test_a_batch_is_one_line_with_its_figures() -> None:
    assert line(batch(progress=KAFKA)) == (
        "batch 11:23:00: 1005 records, scheduling delay 5 ms, processing 400 ms, lag 17 records, 0.4 s behind"
    )


def test_a_batch_that_did_not_take_all_records_says_why() -> None:
    limited = batch(progress={**KAFKA, "readLimit": {"reason": "backpressure", "records": 1000}})
    assert "lag 17 records, limited by backpressure, 0.4 s behind" in line(limited)
    assert fields_of(limited)["limited_by"] == "backpressure"


def test_a_batch_under_back_pressure_says_at_which_rate_it_was_planned() -> None:
    limited = batch(progress={**KAFKA, "backpressureRate": 700})
    assert "lag 17 records, back-pressure 700 a second, 0.4 s behind" in line(limited)
    assert fields_of(limited)["backpressure_rates"] == {"0": 700}
    both = replace(limited, inputs={**limited.inputs, 1: StreamInputInfo(1, 5, {"progress": {"backpressureRate": 80}})})
    assert "back-pressure 700 a second of stream 0, 80 a second of stream 1" in line(both)


def test_figures_that_are_unknown_are_left_out() -> None:
    assert line(batch()) == "batch 11:23:00: 1005 records, scheduling delay 5 ms, processing 400 ms, 0.4 s behind"
    assert line(batch(end=False)) == "batch 11:23:00: 1005 records, scheduling delay 5 ms"
    assert line_of(fields_of(batch()), Milliseconds(500)).startswith("batch 11:23:00.000: ")


def test_a_program_that_has_not_set_the_log_up_is_told_once_how() -> None:
    program = """
import logging
from kstream.context.batch_lines import nobody_has_set_the_log_up, tell_of_lines

print(nobody_has_set_the_log_up())
tell_of_lines()
tell_of_lines()
logging.getLogger("kstream").setLevel(logging.ERROR)
print(nobody_has_set_the_log_up())
logging.getLogger("kstream").setLevel(logging.NOTSET)
logging.basicConfig()
print(nobody_has_set_the_log_up())
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["True", "False", "False"]
    assert said.stderr == "only warnings are shown here: kstream.log(), before the context is made, shows a line for each batch\n"


def test_a_failed_batch_says_so() -> None:
    assert line(batch("ValueError: no")).endswith(", failed")


def test_a_batch_of_another_day_is_named_with_its_date() -> None:
    assert line(batch(late_ms=86_400_000)).startswith("batch 2026-11-22 11:23:00: ")


def test_a_batch_that_ends_before_its_batch_time_is_not_behind() -> None:
    """Batch times go on ahead of a clock that was set back."""
    ended = batch(late_ms=-7_359_000)
    assert line(ended) == "batch 11:23:00: 1005 records, scheduling delay 5 ms, processing 400 ms, 0.0 s behind"
    assert fields_of(ended)["behind_ms"] == 0
    assert line(batch(late_ms=-86_400_000)).startswith("batch 11:23:00: "), "no other day than that of its time"


def test_the_figures_are_fields_with_stable_names() -> None:
    assert fields_of(batch(progress=KAFKA)) == {
        "batch_time": AT.milliseconds,
        "records": 1005,
        "scheduling_delay_ms": 5,
        "processing_ms": 400,
        "behind_ms": 405,
        "lag_records": 17,
        "failed": False,
    }


def test_a_batch_that_takes_longer_than_its_interval_names_its_slowest_output() -> None:
    start = AT.milliseconds
    short = OutputOperationInfo(AT, 0, "pprint at job.py:7", "", start, start + 300, None)
    long = OutputOperationInfo(AT, 1, "foreachRDD at job.py:41", "", start + 300, start + 8200, None)
    slow = BatchInfo(AT, {}, start, start, start + 8200, {0: short, 1: long})
    assert line(slow).endswith("processing 8200 ms, 8.2 s behind, foreachRDD at job.py:41 took 7.9 of 8.2 s")
    assert line_of(fields_of(slow), Seconds(9)).endswith("8.2 s behind")
    assert (fields_of(slow)["slowest_output"], fields_of(slow)["slowest_output_ms"]) == ("foreachRDD at job.py:41", 7900)


def test_a_program_can_switch_the_lines_off(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kstream.batches")
    BatchLines(Seconds(1)).onBatchCompleted(StreamingListenerBatchCompleted(batch()))
    assert caplog.records == []


def test_a_context_logs_one_line_a_batch_on_the_thread_of_the_listeners_and_no_other(
    sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kstream")
    stream = Stream(sc)
    stream.ssc.queueStream([[1, 2], [3]]).foreachRDD(lambda rdd: rdd.count())
    stream.start()
    before = len(caplog.records)
    for _ in range(3):
        stream.tick()
    lines = caplog.records[before:]
    stream.stop()
    assert [record.name for record in lines] == ["kstream.batches"] * 3
    assert {record.threadName for record in lines} == {"StreamingListenerBus"}
    assert [record.__dict__["batch_time"] for record in lines] == stream.counter.completed


def test_records_that_the_errors_policy_has_left_out_are_in_the_line_and_in_the_fields() -> None:
    clean = batch(progress=KAFKA)
    info = replace(clean, inputs={n: replace(source, figures=InputFigures(record_errors=3)) for n, source in clean.inputs.items()})
    assert fields_of(info)["record_errors"] == 3 * len(clean.inputs) and "record_errors" not in fields_of(clean)
    assert f"records, {3 * len(clean.inputs)} with an error, " in line(info)
