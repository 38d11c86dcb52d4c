"""The one warning of late batches: when it comes, what it names, and when nothing is said because no setting would help."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from kstream_kafka import connector_settings
from kstream_kafka.settings import MAX_TASKS
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream

from kstream.batch import BatchInfo, StreamInputInfo
from kstream.batch_time import Seconds, Time
from kstream.conf import Settings
from kstream.context.late_batches import LateBatches, advice, are_ever_later
from kstream.listener import StreamingListenerBatchCompleted

LATE = [2000, 3000, 4000, 5000, 6000]


def said(caplog: pytest.LogCaptureFixture, delays: list[int], partitions: int = 500, records: int = 2000, **facts: Any) -> list[str]:
    """The warnings of a context on two cores after batches with these delays."""
    settings = Settings({MAX_TASKS.key: facts.pop("max_tasks", "0")})
    listener = LateBatches(Seconds(1), settings, lambda: 2, facts.pop("tasks_settings", {0: MAX_TASKS}))
    known = {"offsets": [None] * partitions, "progress": {"description": facts.pop("description", "Kafka[Subscribe[t]]")}}
    for number, delay in enumerate(delays):
        info = BatchInfo(Time(number), {0: StreamInputInfo(0, records, known)}, 0, delay, delay + 9, {})
        listener.onBatchCompleted(StreamingListenerBatchCompleted(info))
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_late_batches_of_many_small_tasks_are_one_warning_with_setting_and_value(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = said(caplog, [*LATE, 7000, 8000, 9000, 10_000, 11_000])
    assert warning == (
        "batches wait ever longer, the last one 6.0 s: a batch reads Kafka by 500 tasks of 4 records on average, and 2 tasks run at a "
        "time. Set spark.streaming.kstream.kafka.maxTasks=4: small ranges then share tasks"
    )


@pytest.mark.parametrize(
    "other",
    [{"max_tasks": "8"}, {"partitions": 8}, {"records": 500_000}, {"tasks_settings": {}}, {"tasks_settings": {1: MAX_TASKS}}],
    ids=["set already", "few tasks", "large tasks", "an input without the setting", "another input has it"],
)
def test_where_the_setting_would_not_help_nothing_is_said(other: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert said(caplog, LATE, **other) == []


@pytest.mark.parametrize("delays", [LATE[:4], [0, 3000, 4000, 5000, 6000], [6000, 5000, 4000, 3000, 2000], [10, 20, 30, 40, 50]])
def test_batches_that_catch_up_or_are_hardly_late_are_no_reason(delays: list[int], caplog: pytest.LogCaptureFixture) -> None:
    assert not are_ever_later(delays, Seconds(1)) and said(caplog, delays) == []


def test_the_cores_of_a_larger_cluster_make_other_bounds() -> None:
    assert advice("Kafka", MAX_TASKS, 500, 2000, 125) is None
    assert "maxTasks=100" in str(advice("Kafka", MAX_TASKS, 500, 2000, 50))


def test_the_setting_of_an_input_exists() -> None:
    assert DirectKafkaInputDStream.tasks_setting == MAX_TASKS
    assert MAX_TASKS in connector_settings().entries
