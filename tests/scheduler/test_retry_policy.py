"""The settings of retries, and the back-off."""

from __future__ import annotations

import pytest

from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.scheduler.retry_policy import RetryPolicy, retry_policy

MINUTE = 60_000


def test_by_default_a_failure_is_reported_at_once_as_in_spark() -> None:
    policy = retry_policy(Settings({}))
    assert policy.is_used_up(1)
    assert not policy.hold


def test_the_back_off_doubles_from_a_second_to_a_minute() -> None:
    policy = RetryPolicy(retries=9)
    assert [policy.delay_ms(n) for n in range(1, 10)] == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_without_retries_left_a_batch_is_tried_once_a_minute() -> None:
    assert [RetryPolicy(retries=1).delay_ms(n) for n in (1, 2, 3)] == [1000, MINUTE, MINUTE]


@pytest.mark.parametrize(
    ("key", "value"),
    [("batch.retries", "-1"), ("failedBatch", "stop"), ("maxHeldBatches", "0")],
)
def test_a_setting_without_a_meaning_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"spark.streaming.kstream.{key} is '?{value}"):
        retry_policy(Settings({f"spark.streaming.kstream.{key}": value}))


def test_an_output_that_needs_order_holds() -> None:
    assert RetryPolicy().with_order().hold
