"""RenewingDriverClient: the driver's client of a stream, which is replaced when the brokers refuse it and its secrets have changed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kstream.offsets.offset_range import Partition
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient, LogEnd, Subscription
from kstream_kafka.client.secrets import ClientSecrets
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError, TlsFailedError

logger = logging.getLogger("kstream.kafka")

Answer = TypeVar("Answer")


def renewing_driver_client(params: KafkaParams, max_retries: int = 1) -> DriverClient:
    """Create a KafkaDriverClient, replaced when its secrets change. Sends no request; blocks for secrets and the first token.

    Args:
        params: the user's Kafka parameters.
        max_retries: as for KafkaDriverClient.
    """
    from kstream_kafka.client.driver_client import KafkaDriverClient  # imported late: to build a graph or a query needs no librdkafka

    return RenewingDriverClient(params, lambda plain: KafkaDriverClient(plain, max_retries))


class RenewingDriverClient:
    """A DriverClient around another one. Not thread-safe: one thread at a time.

    A request that is refused is sent once more, by a new client, if a file, a password or a token is newer than the client.
    """

    def __init__(self, params: KafkaParams, make: Callable[[KafkaParams], DriverClient]) -> None:
        """Create the first client. Blocks as its secrets' sources do.

        Args:
            params: the user's Kafka parameters.
            make: creates a client from parameters with plain values.

        Raises:
            KafkaConfigError: a source of a secret cannot be read, or librdkafka refuses a parameter.
            AuthenticationFailedError: `oauth_cb` returned no token.
        """
        self._params = params
        self._make = make
        self._secrets = ClientSecrets(params.settings)
        self._client = self._made()
        self._hosts: dict[Partition, str] = {}

    def partitions(self, subscription: Subscription) -> set[Partition]:
        return self._asked(lambda client: client.partitions(subscription))

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        return self._asked(lambda client: client.describe_topics(topics))

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return self._asked(lambda client: client.topic_ids(topics))

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        return self._asked(lambda client: client.latest(partitions))

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        return self._asked(lambda client: client.earliest(partitions))

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """Return the first offsets at times, as the client does."""
        return self._asked(lambda client: client.at_times(times_ms, partitions))

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        return self._asked(lambda client: client.committed(group, partitions))

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[Exception | None], None]) -> None:
        """Send a commit, as the client does. A commit that is refused is not sent again: the next one has later offsets."""
        self._client.commit(group, offsets, on_done)

    def leader_hosts(self) -> dict[Partition, str]:
        """Return the hosts of the leaders, those of the former client until the new one has asked for metadata."""
        self._hosts = self._client.leader_hosts() or self._hosts
        return self._hosts

    def close(self) -> None:
        self._client.close()

    def _made(self) -> DriverClient:
        """Create a client with the secrets as they were read last."""
        return self._make(replace(self._params, settings=self._secrets.values))

    def _asked(self, request: Callable[[DriverClient], Answer]) -> Answer:
        """Return the answer of the client; of a new one, if the brokers refuse this one and newer secrets are there."""
        try:
            answer = request(self._client)
        except (AuthenticationFailedError, TlsFailedError) as e:
            if not self._secrets.renew():
                raise
            try:
                fresh = self._made()
            except KafkaConfigError:  # a certificate and its key are being replaced, one after the other: the refusal is the better error
                raise e from None
            self._secrets.on_replaced()
            logger.warning("the driver's Kafka client: it was refused, and is replaced by one with newer secrets: %s", e)
            self.leader_hosts()  # notes them: the new client knows none yet
            self._client.close()
            self._client = fresh
            answer = request(self._client)
        self._secrets.on_response()
        return answer
