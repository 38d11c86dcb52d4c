"""QuerySources: where the batches of a query begin and end in those of its sources that are Kafka, as the checkpoint tells it.

The sink is told nothing of the sources of its query. But Spark stores the offsets of a batch before it begins, and the process that commits
the batch can read them. With Spark's own Kafka source they have the same form.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TypeAlias

from kstream.errors import KStreamError, MissingFileError
from kstream.offsets.offset_log import OFFSETS, sources_of
from kstream.offsets.topic_offsets import TopicOffsets, by_partition, by_topic
from kstream.storage import StorePlace

logger = logging.getLogger("kstream.kafka")

SourceOffsets: TypeAlias = Mapping[str, TopicOffsets]
"""name or number of a source → the next offsets to read"""
SourceRanges: TypeAlias = Mapping[str, list[tuple[str, int, int, int]]]
"""name or number of a source → topic, partition, first offset, and the offset behind the last one"""
MOST_PARTITIONS = 5_000
"""With more partitions no batch tells of its sources: a record of Kafka would become too large."""


class QuerySources:
    """The Kafka sources of a query. One thread. All methods block on the store, and read a file once."""

    def __init__(self, checkpoint: StorePlace | None) -> None:
        """
        Args:
            checkpoint: that of the query; None if it is not known, or out of reach. Then no source is known.
        """
        self._checkpoint = checkpoint
        self._read: dict[int, SourceOffsets] = {}

    def ends(self, batch: int) -> SourceOffsets:
        """Return where a batch ends; empty if that is not known. A checkpoint that cannot be read is a WARNING.

        Args:
            batch: the id of the batch.
        """
        if batch not in self._read:
            self._read[batch] = self._looked_up(batch)
        return self._read[batch]

    def ranges(self, batch: int) -> SourceRanges:
        """Return the records of a batch. Ranges whose first offset is stored nowhere are left out. Arguments as for `ends`."""
        ends = self.ends(batch)
        return between(self.ends(batch - 1), ends) if ends and batch > 0 else {}

    def _looked_up(self, batch: int) -> SourceOffsets:
        if self._checkpoint is None:
            return {}
        name = f"{OFFSETS}/{batch}"
        try:
            store = self._checkpoint.open()
            found = parsed(store.read(name).decode("utf-8", "replace"), store.path(name))
        except MissingFileError:  # Spark has removed it, or this is no checkpoint of Spark
            return {}
        except KStreamError as e:
            logger.warning("the offsets of batch %d of the query are not known to its sink: %s", batch, e)
            return {}
        return found if sum(len(places) for topics in found.values() for places in topics.values()) <= MOST_PARTITIONS else {}


NO_SOURCES = QuerySources(None)


def parsed(text: str, where: str) -> SourceOffsets:
    """Return the offsets of the Kafka sources that a file of the offset log has. Pure.

    Args:
        text: the content of the file.
        where: its place, for errors.

    Raises:
        ConfigurationError: the form of the file is unknown.
    """
    found = dict[str, TopicOffsets]()
    for source, offset in sources_of(text, where).items():
        try:
            offsets = by_partition(json.loads(offset))
        except ValueError:
            continue
        if offsets:
            found[source] = by_topic(offsets)
    return found


def between(begins: SourceOffsets, ends: SourceOffsets) -> SourceRanges:
    """Return the ranges between offsets that have records. Pure.

    Args:
        begins: where they begin.
        ends: where they end.
    """
    found = dict[str, list[tuple[str, int, int, int]]]()
    for name, topics in sorted(ends.items()):
        before = begins.get(name, {})
        for topic, places in topics.items():
            for number, end in places.items():
                begin = before.get(topic, {}).get(number, end)
                if begin < end:
                    found.setdefault(name, []).append((topic, int(number), begin, end))
    return found


def difference(one: SourceOffsets, other: SourceOffsets) -> str | None:
    """Return the first partition in which two batches end at different offsets, a clause; None without one. Pure."""
    for name in sorted({*one, *other}):
        there, here = by_partition(one.get(name, {})) or {}, by_partition(other.get(name, {})) or {}
        for topic, number in sorted({*there, *here}):
            offsets = there.get((topic, number)), here.get((topic, number))
            if offsets[0] != offsets[1]:
                then, now = ("without an offset" if offset is None else f"at offset {offset}" for offset in offsets)
                return f"source {name} ended {then} of {topic}-{number} then, and ends {now} now"
    return None
