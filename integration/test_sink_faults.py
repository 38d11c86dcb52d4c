"""The Kafka sink behind a proxy that holds or drops one request. Each fault of each request, and suspended writers: `make chaos`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from unittest import mock

import pytest
from kstream_kafka.client import transaction
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.continuous.epoch_writer import EpochWriter, KafkaEpochOutput
from kstream_kafka.continuous.hand_over import KafkaHandOver
from kstream_kafka.sink.producer_record import RecordEncoder

from integration.kafka_broker import KafkaBroker
from integration.kafka_proxy import Action, Api, KafkaProxy, Rule, running_proxied_broker
from integration.sink_faults.faults import SETTINGS, Client, Fault, FaultyJob, Until, repeats_of_at_least_once
from kstream.continuous.ports import EpochReceipt

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


def test_epochs_go_on_by_one_producer_until_a_connection_breaks(proxied: tuple[KafkaBroker, KafkaProxy]) -> None:
    """An answer to a commit that is lost, and a connection that is lost between two requests of an epoch."""
    broker, proxy = proxied
    params = KafkaParams.parse({"bootstrap.servers": proxy.bootstrap})
    with closing(KafkaHandOver(params, "epochs", "job", "totals")) as hands:
        output = KafkaEpochOutput(hands.place(), EpochWriter(0, 1, 1), params.sink(), RecordEncoder("totals", "epochs-out"), 60_000)
        broker.create_topic("epochs-out")
        with closing(output):
            output.open()
            taken, position = proxy.requests(Api.INIT_PRODUCER_ID), 0
            for api in (Api.END_TXN, Api.PRODUCE):
                for _ in range(3):
                    _epoch(output, position := position + 1)
                    assert output.is_open
                rule = proxy.add(Rule(api, Action.DROP_ANSWER))
                _epoch(output, position := position + 1)
                assert rule.fired.is_set() and not output.is_open
                output.open()
            assert proxy.requests(Api.INIT_PRODUCER_ID) == taken + 2
        assert hands.receipts([("in", 0)]) == {("in", 0): EpochReceipt(position, 1)}
    assert broker.log_range("epochs-out")[1] == 2 * position, "a record and a commit for each epoch"


def _epoch(output: KafkaEpochOutput, position: int) -> None:
    output.add([b"%d" % position])
    output.end({("in", 0): position})
