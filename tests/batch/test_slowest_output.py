"""Which output operation of a batch took the longest, and its share."""

from __future__ import annotations

from dataclasses import replace

from kstream.batch import BatchInfo, OutputOperationInfo, SlowestOutput, slowest_output
from kstream.batch_time import Time

AT = Time(1_000_000)


def output(number: int, start: int | None, end: int | None) -> OutputOperationInfo:
    return OutputOperationInfo(AT, number, f"print at job.py:{number}", "", start, end, None)


def batch(*outputs: OutputOperationInfo) -> BatchInfo:
    return BatchInfo(AT, {}, 1000, 1000, 9000, {each.output_op_id: each for each in outputs})


def test_the_output_that_took_the_longest_is_named() -> None:
    three = batch(output(0, 1000, 1100), output(1, 1100, 5000), output(2, 5000, 8900))
    assert slowest_output(three) == SlowestOutput("print at job.py:1", 3900)


def test_an_output_that_did_not_end_or_took_no_time_is_not_named() -> None:
    assert slowest_output(batch(output(0, 1000, None), output(1, None, None), output(2, 2000, 2000))) is None
    assert slowest_output(replace(batch(output(0, 1000, 1100)), processing_start_ms=None)) is None
    assert slowest_output(batch()) is None


def test_an_output_of_an_earlier_try_has_no_share_in_the_processing_time_of_the_last_one() -> None:
    retried = replace(batch(output(0, 1000, 4000), output(1, 6000, 7000)), processing_start_ms=6000, tries=2)
    assert slowest_output(retried) == SlowestOutput("print at job.py:1", 1000)


def test_a_person_reads_seconds_and_below_one_second_milliseconds() -> None:
    slowest = SlowestOutput("foreachRDD at job.py:41", 790)
    assert slowest.text(820) == "foreachRDD at job.py:41 took 790 of 820 ms"
    assert slowest.text(8200) == "foreachRDD at job.py:41 took 790 ms of 8.2 s"
    assert replace(slowest, ms=7900).text(8200) == "foreachRDD at job.py:41 took 7.9 of 8.2 s"
