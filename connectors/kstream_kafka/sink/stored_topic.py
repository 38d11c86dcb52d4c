"""StoredTopic: the topic in which a query has its receipt, as a file of its checkpoint says.

Kafka alone cannot tell a query that never wrote from one whose receipts are gone. So the first commit of a query leaves a note.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from urllib.parse import quote

from kstream.errors import CorruptRecordError, KStreamError, MissingFileError
from kstream.storage import StorePlace
from kstream_kafka.sink.receipt import decoded, encoded

logger = logging.getLogger("kstream.kafka")
_VERSION = 1


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic that has the receipt of a query.

    Attributes:
        cluster: the id of the cluster.
        topic: its name.
        topic_id: its id. A topic that is made anew has another one.
    """

    cluster: str
    topic: str
    topic_id: str


def encode_topic(stored: StoredTopic) -> bytes:
    return encoded({"cluster": stored.cluster, "topic": stored.topic, "topicId": stored.topic_id, "version": _VERSION})


def decode_topic(value: bytes, where: str) -> StoredTopic:
    """Return what a file has. CorruptRecordError if it has none. `where`: the file, for the message."""
    with decoded(value, where, _VERSION) as form:
        return StoredTopic(form["cluster"], form["topic"], form["topicId"])


def read_topic(place: StorePlace | None, query: str, topic: str) -> StoredTopic | None:
    """Return what is stored of a topic; None without a file. Blocks on the store. A store that does not answer is a WARNING.

    Args:
        place: where the files of the query are; None for nowhere.
        query: the id of the query; ID/NAME of a frame of `foreachBatch` that has a name.
        topic: the name of the topic.

    Raises:
        CorruptRecordError: the file is damaged.
    """
    if place is None:
        return None
    name = _name(query, topic)
    try:
        return decode_topic(place.open().read(name), f"{place.url}/{name}")
    except CorruptRecordError:
        raise
    except MissingFileError:
        return None
    except KStreamError as e:
        logger.warning(
            "query %s: the note about its receipts could not be read, so a loss of the receipts would not be detected: %s", query, e
        )
        return None


def store_topic(place: StorePlace | None, query: str, stored: StoredTopic) -> bool:
    """Store that a query has a receipt in a topic. Return whether it is stored. Blocks on the store. A failure is a WARNING."""
    if place is None:
        return True
    try:
        place.write(_name(query, stored.topic), encode_topic(stored))
    except KStreamError as e:
        logger.warning(
            "query %s: the note about its receipts could not be written, so a loss of the receipts would not be detected: %s", query, e
        )
        return False
    return True


def _name(query: str, topic: str) -> str:
    """Return the name of the file, beside the spools of the query. Those begin with a number."""
    folder, _, output = query.partition("/")
    return f"{folder}/receipts-{topic}" + (f"-{quote(output, safe='')}" if output else "")
