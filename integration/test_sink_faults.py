"""The Kafka sink behind a proxy that holds or drops one request. Each fault of each request, and suspended writers: `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from kstream_kafka.client import transaction

from integration.kafka_broker import KafkaBroker
from integration.kafka_proxy import Action, KafkaProxy, running_proxied_broker
from integration.sink_faults.faults import SETTINGS, Client, Fault, FaultyJob, Until, repeats_of_at_least_once

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaBroker, KafkaProxy]]:
    with running_proxied_broker(tmp_path_factory.mktemp("kafka"), SETTINGS) as running, mock.patch.object(transaction, "ABORT_S", 1.0):
        yield running


@pytest.fixture(scope="module")
def job(proxied: tuple[KafkaBroker, KafkaProxy]) -> FaultyJob:
    return FaultyJob(*proxied)


@pytest.mark.parametrize("by_new_driver", [False, True])
def test_a_commit_whose_answer_is_lost_is_found_by_the_next_try(job: FaultyJob, by_new_driver: bool) -> None:
    finding = job.meet(Fault("commit", Action.DROP_ANSWER, Client.CUT_OFF, by_new_driver=by_new_driver))
    assert finding.breaches == []
    assert [error.split(":")[0] for error in finding.errors] == ["CommitUnknownError"]


@pytest.mark.parametrize("by_new_driver", [False, True])
def test_records_that_come_late_are_refused_once_the_next_try_has_the_id(job: FaultyJob, by_new_driver: bool) -> None:
    finding = job.meet(Fault("records", Action.HOLD_REQUEST, Client.RETURNS, Until.PREPARED, by_new_driver))
    assert finding.breaches == []
    assert [error.split(":")[0] for error in finding.errors] == ["BrokerUnreachableError"]


def test_the_same_loss_of_an_answer_shows_repeats_of_at_least_once(proxied: tuple[KafkaBroker, KafkaProxy]) -> None:
    """So the verdict can tell a sink that writes twice."""
    assert repeats_of_at_least_once(*proxied) > 0
