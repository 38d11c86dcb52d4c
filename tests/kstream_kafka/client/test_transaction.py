"""What a transaction tells of the errors of librdkafka, which says the cause once and then only that the producer is in a wrong state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException
from kstream_kafka.client import transaction
from kstream_kafka.client.librdkafka import ConnectionLog
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.errors import BrokerUnreachableError, CommitUnknownError, KafkaError, ProducerFencedError


def error(code: int, requires_abort: bool = False) -> KafkaException:
    return KafkaException(ClientError(code, "of the test", False, False, requires_abort))


class FakeProducer:
    """A producer whose calls raise what `fails` has for them."""

    def __init__(self) -> None:
        self.fails: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.settings: dict[str, Any] = {}
        self.log: ConnectionLog | None = None
        self.says: dict[str, str] = {}
        """call → the name of a line of the client's log that a later poll gives."""
        self._said: list[str] = []

    def poll(self, _seconds: float) -> int:
        while self._said:
            assert self.log is not None
            self.log.log(10, "%s [%s] %s", self._said.pop(0), "producer", "text")
        return 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*_: Any, **__: Any) -> int:
            self.calls.append(name)
            if name in self.says:
                self._said.append(self.says[name])
            if name in self.fails:
                raise self.fails[name]
            return 0

        return call


@pytest.fixture
def producer(monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    made = FakeProducer()

    def new_client(_kind: Any, settings: dict[str, Any], log: ConnectionLog | None = None) -> FakeProducer:
        made.settings, made.log = settings, log
        return made

    monkeypatch.setattr(transaction, "new_client", new_client)
    return made


def begun(is_kept: bool = False) -> Transaction:
    one = Transaction({"bootstrap.servers": "fake:1"}, "id", 1000, "receipts", is_kept)
    one.open()
    one.begin()
    return one


@pytest.mark.parametrize("said", [ClientError._FATAL, ClientError._STATE])
def test_the_first_error_is_told_and_not_the_state_that_follows(producer: FakeProducer, said: int) -> None:
    one = begun()
    producer.fails = {"produce": error(said), "begin_transaction": error(ClientError._FENCED)}
    with pytest.raises(ProducerFencedError):
        one.send(("totals", None, b"1", (), None, None))
    producer.fails["begin_transaction"] = error(ClientError.MSG_SIZE_TOO_LARGE)
    with pytest.raises(KafkaError, match="of the test"):
        one.send(("totals", None, b"1", (), None, None))


@pytest.mark.parametrize("code", [ClientError._TIMED_OUT, ClientError._STATE, ClientError.UNKNOWN])
def test_a_commit_without_an_answer_is_unknown_and_not_aborted(producer: FakeProducer, code: int) -> None:
    one = begun()
    producer.fails["commit_transaction"] = error(code)
    with pytest.raises(CommitUnknownError):
        one.commit()
    one.close()
    assert "abort_transaction" not in producer.calls and producer.calls[-1] == "close"


def test_a_commit_of_a_producer_that_was_fenced_is_the_verdict_of_the_other_one(producer: FakeProducer) -> None:
    one = begun()
    producer.fails = {"commit_transaction": error(ClientError._FATAL), "begin_transaction": error(ClientError._FENCED)}
    with pytest.raises(ProducerFencedError):
        one.commit()
    one.close()
    assert "abort_transaction" not in producer.calls


def test_a_commit_that_needs_an_abort_is_aborted(producer: FakeProducer) -> None:
    one = begun()
    producer.fails["commit_transaction"] = error(ClientError._TIMED_OUT, requires_abort=True)
    with pytest.raises(BrokerUnreachableError):
        one.commit()
    one.close()
    assert producer.calls[-2:] == ["abort_transaction", "close"]


def test_a_transaction_that_was_not_committed_is_aborted_whatever_that_says(producer: FakeProducer) -> None:
    one = begun()
    producer.fails = {"abort_transaction": error(ClientError._TIMED_OUT), "close": AttributeError("an older client")}
    one.close()
    assert producer.calls[-2:] == ["abort_transaction", "close"]


def test_records_that_are_too_large_together_say_what_to_do(producer: FakeProducer) -> None:
    one = begun()
    producer.fails["commit_transaction"] = error(ClientError.MSG_SIZE_TOO_LARGE, requires_abort=True)
    with pytest.raises(KafkaError, match=r"is larger than the topic allows \(of the test\).*set batch\.size below max\.message\.bytes"):
        one.commit()


def test_a_transaction_that_can_only_be_aborted_tells_why(producer: FakeProducer) -> None:
    one = begun()
    producer.fails["begin_transaction"] = error(ClientError._STATE)
    assert one.failure() is None, "a transaction that is open cannot begin"
    producer.fails["begin_transaction"] = error(ClientError.TOPIC_AUTHORIZATION_FAILED, requires_abort=True)
    assert "of the test" in str(one.failure())


def test_records_without_an_answer_fail_the_flush(producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> None:
    one = begun()
    monkeypatch.setattr(producer, "flush", lambda _seconds: 3, raising=False)
    with pytest.raises(BrokerUnreachableError):
        one.flush()


def test_a_time_out_that_the_brokers_do_not_allow_says_what_to_do(producer: FakeProducer) -> None:
    producer.fails["init_transactions"] = error(ClientError.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(KafkaError, match=r"raise transaction\.max\.timeout\.ms of the brokers"):
        Transaction({"bootstrap.servers": "fake:1"}, "id", 1000, "receipts").open()


def test_another_transaction_follows_by_the_same_producer_while_no_request_can_be_there_twice(producer: FakeProducer) -> None:
    producer.says = {"init_transactions": "CONNECT", "commit_transaction": "WAKEUP"}
    one = begun(is_kept=True)
    one.commit()
    assert one.can_go_on
    one.begin()
    one.commit()
    assert one.can_go_on and producer.calls.count("init_transactions") == 1
    assert "broker" in producer.settings["debug"] and producer.settings["log_level"] == 7


@pytest.mark.parametrize("line", ["FAIL", "REQTMOUT", "RETRY"])
@pytest.mark.parametrize("call", ["flush", "commit_transaction"])
def test_no_transaction_follows_a_lost_connection_or_a_request_that_was_sent_again(producer: FakeProducer, call: str, line: str) -> None:
    producer.says = {"init_transactions": "CONNECT", call: line}
    one = begun(is_kept=True)
    one.flush()
    one.commit()
    assert not one.can_go_on


def test_a_connection_that_was_lost_before_the_id_was_there_does_not_count(producer: FakeProducer) -> None:
    producer.says = {"init_transactions": "FAIL"}
    one = begun(is_kept=True)
    one.commit()
    assert one.can_go_on


def test_no_transaction_follows_where_the_log_is_silent_or_nobody_asked_for_it(producer: FakeProducer) -> None:
    silent, single = begun(is_kept=True), begun()
    for one in (silent, single):
        one.commit()
    assert not silent.can_go_on and not single.can_go_on and "debug" not in producer.settings


def test_the_debug_lines_that_a_user_wants_stay(producer: FakeProducer) -> None:
    Transaction({"debug": "eos"}, "id", 1000, "receipts", is_kept=True).make()
    assert producer.settings["debug"] == "eos,broker"
