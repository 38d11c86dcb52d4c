"""The offsets in a checkpoint of Structured Streaming: its batches, its logs as text, and the next offsets to read of one Kafka source.

Spark writes `offsets/N` (`kstream.offsets.offset_log`) when batch N begins, and `commits/N` when it has ended. `sources/NAME/0` has the
offset at which a Kafka source began. The offset of a Kafka source is `{"topic": {"0": 123}}`, where 123 is the next offset to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream.errors import ConfigurationError
from kstream.offsets.offset_log import NO_OFFSET, OFFSETS, short, sources_of
from kstream.offsets.topic_offsets import TopicOffsets, by_partition, by_topic
from kstream.storage import FileStore

COMMITS, METADATA, SOURCES = "commits", "metadata", "sources"
_STATE_FOLDERS = (
    "state/0/0",
    "state/0/_metadata",
    "state/0/_metadata/v2",
    "state/0/_stateSchema/default",
    "state/0/0/left-keyToNumValues",
    "state/0",
    "state",
)
"""Folders of which one has files if a query has state: those of its first operator and its first partition, and of a join of streams."""


@dataclass(frozen=True, slots=True)
class NewestBatches:
    """The newest batches of a query.

    Attributes:
        begun: the last batch that has begun; None if there is none.
        committed: the last batch that was committed; None if there is none.
    """

    begun: int | None
    committed: int | None

    @property
    def open(self) -> int | None:
        """The last batch that has begun, if it was not committed."""
        is_open = self.begun is not None and (self.committed is None or self.begun > self.committed)
        return self.begun if is_open else None


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """A file of the offset log.

    Attributes:
        version: that of the log.
        sources: the offset of each source after the batch, by its name or number; `-` if it has none yet.
        metadata: the metadata of the batch, such as `batchTimestampMs`; empty if it has none.
    """

    version: str
    sources: dict[str, str]
    metadata: dict[str, Any]


def is_query(store: FileStore) -> bool:
    """Return whether a store is the checkpoint of a query. Blocks on the store."""
    return store.exists(METADATA)


def has_state(store: FileStore) -> bool:
    """Return whether a query has state. Lists seven folders at most: Spark removes old files, so no name tells it. Blocks on the store.

    Raises:
        StorageError: the store failed.
    """
    return store.exists("state") or any(store.list(folder) for folder in _STATE_FOLDERS)  # object stores have no folders to look for


def newest_batches(store: FileStore) -> NewestBatches:
    """Return the newest batches of a query. Lists two folders. Blocks on the store.

    Raises:
        ConfigurationError: there is no such checkpoint.
        StorageError: the store failed.
    """
    if not is_query(store):
        looked = store.path(METADATA)
        raise refused(store, f"there is no checkpoint of Structured Streaming in {store.url} (looked for {looked})")
    return NewestBatches(_newest(store, OFFSETS), _newest(store, COMMITS))


def read_entry(store: FileStore, batch: int) -> BatchEntry:
    """Return what the offset log has of a batch. Reads one file. Blocks on the store.

    Raises:
        ConfigurationError: the file is missing, damaged, or of an unknown version.
        StorageError: the store failed.
    """
    name = f"{OFFSETS}/{batch}"
    if not store.exists(name):
        raise refused(store, f"{store.url} is damaged: batch {batch} is committed, and {store.path(name)} is missing")
    text = store.read(name).decode("utf-8", "replace")
    sources = sources_of(text, store.path(name))
    try:
        metadata = json.loads(text.split("\n")[1])
    except ValueError:
        metadata = {}
    return BatchEntry(text.split("\n")[0], sources, metadata if isinstance(metadata, dict) else {})


def batches_since(store: FileStore, newest: int, moment_ms: int) -> list[tuple[int, BatchEntry, BatchEntry | None]]:
    """Return the batches that began at or after a moment, oldest first, each with the one before it; None if that is not stored.

    Looks from the newest batch backwards, until one began earlier or is not stored. Lists a folder, and reads a file for each of them.
    Blocks on the store.

    Args:
        store: the checkpoint of a query.
        newest: the number of the newest batch.
        moment_ms: the moment in ms.

    Raises:
        ConfigurationError: a file is damaged, or of an unknown version.
        StorageError: the store failed.
    """
    stored = {int(name) for name in store.list(OFFSETS) if name.isdecimal()}
    found: list[tuple[int, BatchEntry, BatchEntry | None]] = []
    entry: BatchEntry | None = read_entry(store, newest)
    for number in range(newest, -1, -1):
        began_ms = entry.metadata.get("batchTimestampMs") if entry is not None else None
        if entry is None or not isinstance(began_ms, int) or began_ms < moment_ms:
            break
        before = read_entry(store, number - 1) if number - 1 in stored else None
        found.append((number, entry, before))
        entry = before
    return found[::-1]


def check_form(store: FileStore, batch: int, metadata: Mapping[str, object], therefore: str) -> None:
    """Check that a batch is one of micro-batches, and says nothing that this module does not know. Pure.

    Args:
        store: the checkpoint, for the error.
        batch: the number of the batch.
        metadata: its metadata.
        therefore: what cannot be done else, as a clause.

    Raises:
        ConfigurationError: it is not, or does.
    """
    place = store.path(f"{OFFSETS}/{batch}")
    if not isinstance(metadata.get("batchTimestampMs"), int):
        raise refused(store, f"{place} is no micro-batch, but one of continuous processing: {therefore}")
    for key in ("sourceMetadataInfo", "controlBatchInfo"):
        if metadata.get(key):
            raise refused(store, f"{place} has {key}, which this version of kstream does not know: {therefore}")


@dataclass(frozen=True, slots=True)
class Carried:
    """The offsets of one Kafka source, with what is known about its batches.

    Attributes:
        source: the name or the number of the source.
        offsets: the next offset to read of each partition.
        committed: the last batch that was committed; None if there was none.
        begun: the last batch that has begun and was not committed; None if there is none.
        skips: whether the offsets are those after `begun`.
    """

    source: str
    offsets: TopicOffsets
    committed: int | None
    begun: int | None
    skips: bool


def carried_offsets(store: FileStore, source: str | None, skip_begun: bool) -> Carried:
    """Return the offsets at which another reader goes on. Reads four small files at most, and lists two folders. Blocks on the store.

    Args:
        store: the checkpoint of a query.
        source: the name or the number of the source; None if it has only one.
        skip_begun: begin after a batch that has begun and was not committed; otherwise at its beginning.

    Raises:
        ConfigurationError: there is no such checkpoint, its form is unknown, it does not say which source, or the source has no Kafka
            offsets.
        StorageError: the store failed.
    """
    batches = newest_batches(store)
    if batches.begun is None:
        raise refused(store, f"no batch of {store.url} has begun: it has no offsets to carry over")
    done, open_batch = batches.committed, batches.open
    number = batches.begun if done is None or (skip_begun and open_batch is not None) else done
    sources = read_entry(store, number).sources
    name = _chosen(store, sources, source)
    before_first = done is None and not skip_begun
    text = NO_OFFSET if before_first else sources[name]
    if text == NO_OFFSET:
        text = _stored_initial_offset(store, name)
    offsets = kafka_offsets(text)
    if offsets is None:
        raise refused(store, f"source {name} of {store.url} is no Kafka source: its offset is {short(text)}")
    return Carried(name, offsets, done, open_batch, skip_begun and open_batch is not None)


def kafka_offsets(text: str) -> TopicOffsets | None:
    """Return the offset of a Kafka source from its JSON; None if it is that of another source. Pure."""
    try:
        offsets = by_partition(json.loads(text))
    except ValueError:
        return None
    return by_topic(offsets) if offsets else None


def initial_offset(store: FileStore, name: str) -> str | None:
    """Return the offset at which a source began, as Spark's Kafka source stores it; None if it stores none. Blocks on the store.

    Raises:
        ConfigurationError: the form of the file is unknown.
        StorageError: the store failed.
    """
    place = f"{SOURCES}/{name}/0"
    if not store.exists(place):
        return None
    version, _, offset = store.read(place).decode("utf-8", "replace").lstrip("\0").partition("\n")
    if version != "v1":
        raise refused(store, f"{store.path(place)} has the version {short(version)}: kstream reads v1 of the initial offsets")
    return offset.strip()


def _newest(store: FileStore, folder: str) -> int | None:
    """Return the number of the newest batch in a log; None if it has none. Spark's temporary files and checksums are left out."""
    return max((int(name) for name in store.list(folder) if name.isdecimal()), default=None)


def _chosen(store: FileStore, sources: dict[str, str], source: str | None) -> str:
    """Return the name of the source that is meant. ConfigurationError if that is not clear."""
    shown = ", ".join(f"{name} ({short(offset)})" for name, offset in sources.items())
    if source is None and len(sources) > 1:
        raise refused(store, f"{store.url} has {len(sources)} sources: {shown}. Choose one with --source")
    chosen = next(iter(sources)) if source is None else source
    if chosen not in sources:
        raise refused(store, f"{store.url} has no source {chosen!r}: it has {shown}")
    return chosen


def _stored_initial_offset(store: FileStore, name: str) -> str:
    """Return the offset at which a source began. ConfigurationError if it has not begun, or stores none."""
    found = initial_offset(store, name)
    if found is None:
        looked = f"(looked for {store.path(f'{SOURCES}/{name}/0')})"
        raise refused(store, f"no batch of {store.url} is committed, and it does not say where source {name} began {looked}")
    return found


def refused(store: FileStore, sentence: str) -> ConfigurationError:
    """Return an error about the checkpoint of a query."""
    return ConfigurationError(sentence, key="checkpoint", value=store.url)
