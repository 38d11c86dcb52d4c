"""What must be done before a query of Structured Streaming goes on with the other Kafka source: Spark's own, or kstream's.

Both store the same offsets, and read those of the other. So a source that has an offset in the last committed batch goes on there, and so
does a batch that has begun. Only the beginning of a first batch is kept in two ways. Spark's source writes it into `sources/N/0` of the
checkpoint. A Python source has no such place: kstream finds it again by `startingOffsets`, and, where that is `latest`, by the end of the
first batch, which has no record of such a partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kstream.cli.structured_streaming import SOURCES, check_form, initial_offset, newest_batches, read_entry, refused
from kstream.errors import AlreadyExistsError, ConfigurationError
from kstream.offsets.offset_log import NO_OFFSET
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Position, Positions
from kstream.offsets.topic_offsets import by_partition, text_of
from kstream.storage import FileStore
from kstream_kafka.structured.option_kinds import EARLIEST

KAFKA, KSTREAM = "kafka", "kstream"
"""The names of the sources, as `format` takes them."""
Offsets = Mapping[Partition, int]


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """Where a Kafka source of a query is.

    Attributes:
        name: its name or number.
        begin: the offsets after the last committed batch; None if it has none.
        end: the offsets after the batch that has begun and is not committed; None without such a batch.
        initial: where it began, as Spark's source stores it; None if it stores nothing.
    """

    name: str
    begin: Offsets | None
    end: Offsets | None
    initial: Offsets | None


@dataclass(frozen=True, slots=True)
class QueryStanding:
    """Where a query is. `committed` and `open` are the last committed batch, and the one that has begun after it."""

    committed: int | None
    open: int | None
    sources: list[SourceStanding]


@dataclass(frozen=True, slots=True)
class Move:
    """What one source needs before it is replaced.

    Attributes:
        source: its name or number.
        sentence: what is so.
        starting_offsets: the value of `startingOffsets` for the next start; None if the query keeps its options.
        file: the name and the content of a file that the checkpoint must have; None if it has all.
    """

    source: str
    sentence: str
    starting_offsets: str | None = None
    file: tuple[str, bytes] | None = None


def read_standing(store: FileStore) -> QueryStanding:
    """Read where a query is. Blocks on the store.

    Raises:
        ConfigurationError: there is no checkpoint of a query, it is damaged or of a form that cannot be moved, no batch has begun, or no
            source reads Kafka.
        StorageError: the store failed.
    """
    batches = newest_batches(store)
    if batches.begun is None:
        raise refused(store, f"no batch of {store.url} has begun: there is nothing to move. Begin the query with the other source")
    newest = read_entry(store, batches.begun)
    check_form(store, batches.begun, newest.metadata, "the query cannot be moved")
    if batches.open is not None and batches.open != (-1 if batches.committed is None else batches.committed) + 1:
        words = f"batch {batches.open} of {store.url} has begun, and the last committed one is {batches.committed}"
        raise refused(store, f"{words}: run the query once with its own source, and without asyncProgressTrackingEnabled")
    if batches.open is None and batches.begun != batches.committed:
        words = f"batch {batches.committed} is committed, and the last that has begun is {batches.begun}"
        raise refused(store, f"{store.url} is damaged: {words}")
    before = {} if batches.committed is None else read_entry(store, batches.committed).sources
    sources: list[SourceStanding] = []
    for name, text in newest.sources.items():
        begin, end = _offsets(before.get(name)), _offsets(text) if batches.open is not None else None
        if begin is not None or end is not None or text == NO_OFFSET:
            sources.append(SourceStanding(name, begin, end, None if begin is not None else _offsets(initial_offset(store, name))))
    if all(offsets is None for source in sources for offsets in (source.begin, source.end, source.initial)):
        raise refused(store, f"no source of {store.url} reads Kafka: there is nothing to move")
    return QueryStanding(batches.committed, batches.open, sources)


def _offsets(text: str | None) -> Offsets | None:
    """Return the offsets in a text of the checkpoint; None for no text, or another's offsets. `{}` is of a pattern without topics."""
    try:
        return None if text is None else by_partition(json.loads(text))
    except ValueError:
        return None


# -- what to do


def move_of(source: SourceStanding, to: str, starts: Positions | None) -> Move:
    """Return what a source needs before the source `to` takes its place. Pure.

    Args:
        source: where it is.
        to: KAFKA or KSTREAM.
        starts: the positions of the option `startingOffsets` of the query; None if the user has not said them.

    Raises:
        ConfigurationError: the checkpoint does not say where a first batch begins, and `starts` does not either.
    """
    name = source.name
    if source.begin is not None:
        return Move(name, f"source {name} goes on at its offsets: nothing must be changed")
    if to == KSTREAM:
        if source.initial is None:
            return Move(name, f"source {name} has no start of Spark's own source: it goes on with the options that it has")
        return Move(name, _begun_by_spark(source), _starting_offsets(source.initial, source.end or {}))
    if source.initial is not None:
        return Move(name, f"source {name} has its start in {SOURCES}/{name}/0: nothing must be changed")
    if source.end is None:
        return Move(name, f"source {name} has read nothing yet: it begins by its options")
    return _to_kafka(name, source.end, starts)


def _begun_by_spark(source: SourceStanding) -> str:
    """Return the sentence about a source of Spark that has committed no batch."""
    return (
        f"source {source.name} has committed no batch, and began at offsets that kstream cannot see. Start it once with the option below, "
        "and without startingTimestamp and startingOffsetsByTimestamp, until its first batch is committed; else it could lose records"
    )


def _starting_offsets(initial: Offsets, end: Offsets) -> str:
    """Return the value of `startingOffsets` by which a first batch begins where it began: at `initial`.

    A partition of its end that was not there then begins at its first record.
    """
    return text_of({**dict.fromkeys(end, EARLIEST), **initial})


def _to_kafka(name: str, end: Offsets, starts: Positions | None) -> Move:
    """Return what Spark's source needs to run a first batch of kstream again, which ends at `end`.

    It looks its start up anew by the options. That is the same start, unless it is `latest`. Then the start is the end of the first batch,
    and the move has a file that stores it as Spark's source does.

    Raises:
        ConfigurationError: `starts` is None; or partitions began at `latest` and others at `earliest`, which is stored nowhere.
    """
    remedy = "let kstream commit its first batch (trigger availableNow) and move then"
    if starts is None:
        words = f"source {name} has committed no batch, and the checkpoint does not say where it began"
        words = f"{words}: {remedy}, or give --starting-offsets with the value of its option startingOffsets"
        raise ConfigurationError(words, key="--starting-offsets", value=None)
    places: dict[Partition, Position] = {p: place for p in end if (place := starts.of(p)) is not None}
    kinds = {place.kind for place in places.values()}
    if "latest" not in kinds:
        return Move(name, f"source {name} finds its start again by startingOffsets: nothing must be changed")
    if "earliest" in kinds:
        words = f"source {name} began at both ends of its logs, and the checkpoint does not say where the earliest were: {remedy}"
        raise ConfigurationError(words, key="--starting-offsets", value=None)
    begin = {p: end[p] if place.kind == "latest" else place.value for p, place in places.items()}
    words = f"source {name} began at latest: the end of its first batch is its start, for Spark's source to find"
    return Move(name, words, file=(f"{SOURCES}/{name}/0", b"\0v1\n" + text_of(begin).encode()))


def chosen(sources: Iterable[SourceStanding], name: str | None) -> list[SourceStanding]:
    """Return the source of a name; all without one. ConfigurationError if there is no such Kafka source. Pure."""
    found = [source for source in sources if name in (None, source.name)]
    if not found:
        known = ", ".join(source.name for source in sources)
        raise ConfigurationError(f"the query has no Kafka source {name!r}; it has {known}", key="--source", value=name)
    return found


# -- doing it


def write_file(store: FileStore, name: str, content: bytes) -> None:
    """Write a file that is not there, whole or not at all. Blocks on the store.

    Raises:
        ConfigurationError: the file is there: a query has written it meanwhile.
        StorageError: the store failed.
    """
    try:
        store.create(name, content)
    except AlreadyExistsError as e:
        raise refused(store, f"{store.path(name)} has come meanwhile: a query runs. Stop it first") from e
