"""The transactional ids of an output, and how a driver takes them from earlier producers."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.transaction import THREAD, Transaction

AT_ONCE = 32
"""So many transactional ids are taken at once."""


def take_ids(params: KafkaParams, identities: Iterable[str], topic: str) -> None:
    """Take transactional ids, several at once: their earlier producers can write no more, and their open transactions are aborted. Blocks.

    Args:
        params: the Kafka parameters.
        identities: the transactional ids.
        topic: a topic that exists.

    Raises:
        KafkaError: the brokers do not answer, or refuse this client.
    """

    def take(identity: str) -> None:
        transaction = Transaction(params.sink(), identity, params.transaction_ms, topic)
        try:
            transaction.open()
        finally:
            transaction.close()

    with ThreadPoolExecutor(AT_ONCE, THREAD) as threads:
        list(threads.map(take, identities))
