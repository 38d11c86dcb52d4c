"""check_transactions: tries, before the first write of an output, whether the brokers keep what a transaction promises.

An error of a broker shows only as records that are lost, or that are there twice. So it is looked for before there is anything to lose.
"""

from __future__ import annotations

from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.librdkafka import is_mock_id
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.errors import KafkaConfigError, ProducerFencedError
from kstream_kafka.sink.receipt import encoded

_HINT = "Use delivery='at-least-once' with these brokers, or write to others."


def check_is_broker(client: KafkaDriverClient) -> None:
    """Raise KafkaConfigError for the embedded broker. It has no transactions, and does not answer all requests. Blocks."""
    if is_mock_id(client.cluster_id()):
        raise KafkaConfigError("delivery", "is exactly-once, and the embedded broker has no transactions", _HINT)


def check_transactions(params: KafkaParams, reader: TopicReader, topic: str, partition: int, transactional_id: str, seconds: float) -> None:
    """Write a record, let another producer take the transactional id, and try to commit, and to read the record. Blocks.

    Nothing is left but an aborted record.

    Args:
        params: the Kafka parameters.
        reader: reads the topic.
        topic, partition: where the record is written.
        transactional_id: one that nobody else uses.
        seconds: how long to wait for the read.

    Raises:
        KafkaConfigError: the record was committed or could be read.
        KafkaError: the brokers do not answer, or refuse this client.
    """
    key, offsets = encoded(["probe", transactional_id]), list[int]()
    first, second = (Transaction(params.sink(), transactional_id, params.transaction_ms, topic) for _ in range(2))
    try:
        first.open()
        first.begin()
        first.send((topic, key, b"", (), partition, None), lambda _, at: offsets.append(at))
        first.flush()
        second.open()
        if not _is_fenced(first):
            raise KafkaConfigError("delivery", "is exactly-once, and the brokers let an earlier producer commit", _HINT)
        if reader.read(topic, {partition: offsets[-1]}, seconds, lambda found: found == key).messages:
            raise KafkaConfigError("delivery", "is exactly-once, and the brokers show aborted records to readers of committed ones", _HINT)
    finally:
        first.close()
        second.close()


def _is_fenced(transaction: Transaction) -> bool:
    """Try to commit. Return whether the brokers refuse it because another producer has taken the transactional id."""
    try:
        transaction.commit()
    except ProducerFencedError:
        return True
    return False
