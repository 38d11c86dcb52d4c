"""The offsets in a checkpoint of Structured Streaming: its logs as text, and the next offsets to read of one Kafka source.

Spark writes `offsets/N` when batch N begins: the first line is the version of the log, the second the metadata of the batch, and each other
line the offset of a source, up to which the batch reads. `-` stands for a source that has no offset yet. In `v1` the lines are in the order
of the sources; in `v2` each begins with the name of its source, and a source that was not named has its number. `commits/N` is written
when batch N has ended. `sources/NAME/0` has the offset at which a Kafka source began. The offset of a Kafka source is
`{"topic": {"0": 123}}`, where 123 is the next offset to read.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from kstream.errors import ConfigurationError
from kstream.offsets.topic_offsets import TopicOffsets, by_partition, by_topic
from kstream.storage import FileStore

OFFSETS, COMMITS, METADATA, SOURCES = "offsets", "commits", "metadata", "sources"
VERSIONS = ("v1", "v2")
NO_OFFSET = "-"
_NAMED = re.compile(r"(\w+):(.*)", re.DOTALL)


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
    if not store.exists(METADATA):
        looked = store.path(METADATA)
        raise _refused(store, f"there is no checkpoint of Structured Streaming in {store.url} (looked for {looked})")
    begun, committed = _numbers(store, OFFSETS), _numbers(store, COMMITS)
    if not begun:
        raise _refused(store, f"no batch of {store.url} has begun: it has no offsets to carry over")
    done = committed[-1] if committed else None
    open_batch = begun[-1] if done is None or begun[-1] > done else None
    number = begun[-1] if open_batch is not None and (skip_begun or done is None) else done
    assert number is not None
    if number not in begun:
        raise _refused(store, f"{store.url} is damaged: batch {number} is committed, and {store.path(f'{OFFSETS}/{number}')} is missing")
    sources = sources_of(store.read(f"{OFFSETS}/{number}").decode("utf-8", "replace"), store.path(f"{OFFSETS}/{number}"))
    name = _chosen(store, sources, source)
    before_first = done is None and not skip_begun
    text = NO_OFFSET if before_first else sources[name]
    if text == NO_OFFSET:
        text = _initial_offset(store, name)
    offsets = kafka_offsets(text)
    if offsets is None:
        raise _refused(store, f"source {name} of {store.url} is no Kafka source: its offset is {_short(text)}")
    return Carried(name, offsets, done, open_batch, skip_begun and open_batch is not None)


def sources_of(text: str, where: str) -> dict[str, str]:
    """Return the offset of each source, by its name or number, from a file of the offset log. Pure.

    Args:
        text: the content of the file.
        where: its place, for errors.

    Raises:
        ConfigurationError: the version is unknown, or the file is cut short.
    """
    version, *lines = text.split("\n")
    if version not in VERSIONS:
        known = " and ".join(VERSIONS)
        text = f"{where} has the version {_short(version)}: kstream reads {known} of the offset log"
        raise ConfigurationError(text, key="from", value=where)
    offsets = [line for line in lines[1:] if line]
    if version == "v1":
        named = {str(number): offset for number, offset in enumerate(offsets)}
    else:
        named = {match[1]: match[2] for line in offsets if (match := _NAMED.fullmatch(line)) is not None}
    if not offsets or len(named) != len(offsets):
        raise ConfigurationError(f"{where} is damaged: it has not a line with an offset for each source", key="from", value=where)
    return named


def kafka_offsets(text: str) -> TopicOffsets | None:
    """Return the offset of a Kafka source from its JSON; None if it is that of another source. Pure."""
    try:
        offsets = by_partition(json.loads(text))
    except ValueError:
        return None
    return by_topic(offsets) if offsets else None


def _numbers(store: FileStore, folder: str) -> list[int]:
    """Return the numbers of the batches in a log, rising. Spark's temporary files and checksums are left out."""
    return sorted(int(name) for name in store.list(folder) if name.isdecimal())


def _chosen(store: FileStore, sources: dict[str, str], source: str | None) -> str:
    """Return the name of the source that is meant. ConfigurationError if that is not clear."""
    shown = ", ".join(f"{name} ({_short(offset)})" for name, offset in sources.items())
    if source is None and len(sources) > 1:
        raise _refused(store, f"{store.url} has {len(sources)} sources: {shown}. Choose one with --source")
    chosen = next(iter(sources)) if source is None else source
    if chosen not in sources:
        raise _refused(store, f"{store.url} has no source {chosen!r}: it has {shown}")
    return chosen


def _initial_offset(store: FileStore, name: str) -> str:
    """Return the offset at which a source began. ConfigurationError if it has not begun, or stores none."""
    place = f"{SOURCES}/{name}/0"
    if not store.exists(place):
        looked = f"(looked for {store.path(place)})"
        raise _refused(store, f"no batch of {store.url} is committed, and it does not say where source {name} began {looked}")
    version, _, offset = store.read(place).decode("utf-8", "replace").lstrip("\0").partition("\n")
    if version != "v1":
        raise _refused(store, f"{store.path(place)} has the version {_short(version)}: kstream reads v1 of the initial offsets")
    return offset.strip()


def _short(text: str) -> str:
    """Return a text for a sentence: printable, and at most 60 characters."""
    shown = ascii(text)[1:-1]
    return f"{shown[:60]}…" if len(shown) > 60 else shown


def _refused(store: FileStore, sentence: str) -> ConfigurationError:
    """Return the error about the checkpoint of `--from`."""
    return ConfigurationError(sentence, key="from", value=store.url)
