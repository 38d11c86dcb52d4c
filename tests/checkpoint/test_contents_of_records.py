"""A record with a right checksum and any contents at all is read, or is an error that names it: whoever writes there stops no command."""

from __future__ import annotations

import base64
import copy
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kstream.batch import BatchDelays, BatchOutcome, BatchPlan, InputOutcome, SkippedRecord, StateCheckpoint
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, format, names, read_log, take_epoch
from kstream.checkpoint.driver_status import BatchFigures, DriverStatus, LastError, StreamLag, read_status, write_status
from kstream.checkpoint.history import PastBatch, read_history, read_ledger, write_segment
from kstream.checkpoint.input_records import KeptOffsets, read_connections, read_kept, write_connections, write_kept
from kstream.checkpoint.interval_change import IntervalChange, read_change, write_change
from kstream.checkpoint.outcomes import failure_names, read_completion, read_failure
from kstream.checkpoint.plan_log import epoch_taken_ms
from kstream.checkpoint.reader import read_left_out, read_meta, record_takeover, write_meta
from kstream.checkpoint.settled import Settled, read_settled, write_settled
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip, read_requests
from kstream.checkpoint.state_log import read_states, set_aside, states_in
from kstream.checkpoint.stop_request import StopRequest, ask_to_stop, read_stop
from kstream.checkpoint.stored_graph import GraphRecord, read_graph, remove_graph, write_graph
from kstream.errors import CorruptRecordError, FormatVersionError, GraphNotRestoredError
from kstream.receiver.received_block_tracker import BatchCleanupEvent, BlockAdditionEvent, ReceivedBlockInfo, from_bytes, to_bytes
from kstream.storage import FileStore, MemoryFileStore
from kstream.wal import FileBasedWriteAheadLogSegment

T = Time(2000)
FILE = names.state(names.state_prefix(T, 1, "s0"), 0, "aa")
STATES = {"s0": StateCheckpoint(T, (FILE,), 7, Duration(3000))}
SKIPPED = SkippedRecord(0, "orders", 0, 5, (1,))
LOSS = {"topic": "orders", "partition": 0, "from": 5, "until": 8, "cause": "retention", "detail": "gone"}
PLAN = BatchPlan(T, 1, "n", {0: {"ranges": [["orders", 0, 5, 9]]}}, {0: 4}, Time(1000), Time(0), names={0: "orders", 1: None})
OUTCOME = InputOutcome([4, None], [LOSS], False, [SKIPPED], [("map at job.py:7", "KeyError", 1)], 700)
STATUS = DriverStatus(
    application="orders",
    epoch=1,
    host="h",
    pid=7,
    started_ms=1000,
    written_ms=2000,
    interval=Duration(1000),
    last_planned=T,
    unfinished=1,
    oldest_unfinished=T,
    recent=(BatchFigures(T, 4, 1, 2, record_errors=1),),
    lag=(StreamLag(0, "orders", 5, "maxRate"),),
    rates={0: 5},
    last_error=LastError(2000, "boom", T, "0, pprint at job.py:7"),
    state_error="no space",
    metrics_url="http://h:1/metrics",
    ui_url="http://h:2",
)
BLOCK = ReceivedBlockInfo(0, "input-0-1", 3, {"a": 1}, FileBasedWriteAheadLogSegment("receivedData/0/log-1", 0, 9))


class Kind(NamedTuple):
    """A kind of record: what writes one into a store, its name there, and all that read it."""

    kind: str
    name: str
    write: Callable[[FileStore], object]
    readers: tuple[Callable[[FileStore], object], ...]


def ended(store: FileStore) -> None:
    log = PlanLog(store, 1)
    log.write_plan(PLAN)
    log.complete(T, 1, BatchOutcome(5, {0: OUTCOME}, STATES, BatchDelays(40, 1250, 2)))


def failed(store: FileStore) -> None:
    log = PlanLog(store, 1)
    log.write_plan(PLAN)
    log.fail(T, 1, 5, "boom", STATES)


def taken_over(store: FileStore) -> None:
    PlanLog(store, 1).write_plan(PLAN)
    record_takeover(store, read_log(store), 3)


def states(store: FileStore) -> object:
    return read_states(store, read_log(store), wanted=True)


def graph_of(store: FileStore) -> object:
    graph = read_graph(store)
    remove_graph(store)
    return graph


DONE, FAILED = names.done(T, 1), names.failed(T, 1, 1)
REQUEST = SkipRequest(T, 1, SkippedRecord(*SKIPPED.place), 5, "h, pid 1", "poison")
KINDS = [
    Kind("meta", "meta", lambda s: write_meta(s, Meta(Time(1000), Duration(1000))), (read_meta, read_log)),
    Kind("epoch", "epoch-1", lambda s: take_epoch(s, 5), (lambda s: epoch_taken_ms(s, 1),)),
    Kind("plan", names.plan(T, 1), lambda s: PlanLog(s, 1).write_plan(PLAN), (read_log,)),
    Kind(
        "done",
        DONE,
        ended,
        (lambda s: read_completion(s, T, 1), lambda s: read_left_out(s, T, 1), lambda s: states_in(s, DONE, T), read_log),
    ),
    Kind(
        "failed",
        FAILED,
        failed,
        (lambda s: [read_failure(s, name) for [name] in failure_names(s).values()], lambda s: states_in(s, FAILED, T)),
    ),
    Kind("given-up", names.given_up(T, 1), lambda s: PlanLog(s, 1).give_up(PLAN, 5, 4), (read_ledger,)),
    Kind("lost", names.lost(T, 1, 1), ended, (read_ledger,)),
    Kind("skip", REQUEST.name, lambda s: ask_to_skip(s, REQUEST), (lambda s: read_requests(s, lambda _t, _e: True), read_ledger)),
    Kind(
        "history",
        names.history(T, T, 1),
        lambda s: write_segment(s, 1, [PastBatch(PLAN, {0: [4, None]}, (SKIPPED,), BatchDelays(40, 1250))]),
        (read_history,),
    ),
    Kind("settled", names.settled(Time(1000), T, 1), lambda s: write_settled(s, Settled(Time(1000), T, (PLAN,), 1)), (read_settled,)),
    Kind("adopted", names.of_epoch(names.ADOPTED, 3), taken_over, (read_log,)),
    Kind("gone-states", names.of_epoch(names.GONE_STATES, 2), lambda s: set_aside(s, 2, STATES), (states,)),
    Kind(
        "kept-offsets",
        names.of_epoch(names.KEPT_OFFSETS, 1),
        lambda s: write_kept(s, KeptOffsets(1, {0: "orders", 1: None}, {0: {"ranges": []}})),
        (read_kept,),
    ),
    Kind(
        "interval-change",
        names.of_epoch(names.INTERVAL_CHANGES, 1),
        lambda s: write_change(s, 1, IntervalChange(Time(1000), Time(1000), Duration(500))),
        (read_change,),
    ),
    Kind(
        "connections",
        names.CONNECTIONS,
        lambda s: write_connections(s, {1: ("kafka-direct", {"bootstrap.servers": "h:1"})}),
        (lambda s: read_connections(s, "kafka-direct"),),
    ),
    Kind("status", names.of_epoch(names.STATUS, 1), lambda s: write_status(s, STATUS), (read_status,)),
    Kind("stop", names.of_epoch(names.STOP, 1), lambda s: ask_to_stop(s, StopRequest(1, 5, "h", True)), (lambda s: read_stop(s, 1),)),
    Kind("graph", names.GRAPH, lambda s: write_graph(s, GraphRecord({"calls": []}, [1], b"w", b"d")), (graph_of,)),
    Kind(
        "block-added",
        "added",
        lambda s: s.create("added", to_bytes(BlockAdditionEvent(BLOCK, 1))),
        (lambda s: from_bytes(s.read("added"), s.path("added")),),
    ),
    Kind(
        "blocks-cleaned",
        "cleaned",
        lambda s: s.create("cleaned", to_bytes(BatchCleanupEvent(("input-0-1",)))),
        (lambda s: from_bytes(s.read("cleaned"), s.path("cleaned")),),
    ),
]
REFUSALS = (CorruptRecordError, GraphNotRestoredError)
GONE = object()
VALUES = (GONE, None, True, 0, -1, 1.5, 10**30, "", "text", "../../victim", [], [[]], ["text"], [7, None, {}], {}, {"0": 0}, {"text": None})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in JSON, of the innermost ones, too."""
    for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def changed(fields: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    """The fields with another value at a path, or with none there."""
    fields = copy.deepcopy(fields)
    inside: Any = fields
    for key in path[:-1]:
        inside = inside[key]
    if value is GONE:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return fields


def new_store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def written(kind: Kind) -> tuple[MemoryFileStore, dict[str, Any]]:
    store = new_store()
    kind.write(store)
    fields = json.loads(store.read(kind.name))
    return store, {key: value for key, value in fields.items() if key not in ("kind", "version", "checksum")}


def refusal(store: FileStore, name: str, read: Callable[[FileStore], object]) -> str | None:
    """What a reader says of the record: None if it reads it, else its error, which names the record."""
    try:
        read(store)
        return None
    except REFUSALS as e:
        assert store.path(name) in str(e) and "\n" not in str(e)
        return str(e)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_whatever_a_record_holds_it_is_read_or_refused_by_its_name(kind: Kind) -> None:
    store, fields = written(kind)
    assert [refusal(store, kind.name, read) for read in kind.readers] == [None] * len(kind.readers)
    refused = 0
    for path in places(fields):
        for value in VALUES:
            store.replace(kind.name, format.encode(kind.kind, changed(fields, path, value)))
            said = [refusal(store, kind.name, read) for read in kind.readers]
            refused += any(said)
            store.replace(kind.name, format.encode(kind.kind, fields))
    assert refused or kind.kind == "connections", "commands go on without the connections"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_record_that_is_nested_too_deep_is_refused_by_its_name(kind: Kind, opening: bytes) -> None:
    store, _ = written(kind)
    store.replace(kind.name, opening * 100_000)
    said = [refusal(store, kind.name, read) for read in kind.readers]
    assert any(said) or kind.kind == "connections", "commands go on without the connections"


def of(kind: str) -> tuple[MemoryFileStore, dict[str, Any], Kind]:
    found = next(each for each in KINDS if each.kind == kind)
    return *written(found), found


IMPOSSIBLE = [
    ("meta", ("interval",), 0),
    ("meta", ("interval",), -1000),
    ("meta", ("zero_time",), "1000"),
    ("meta", ("zero_time",), 10**18),
    ("interval-change", ("interval",), 0),
    ("status", ("interval",), 0),
    ("status", ("written",), 10**18),
    ("status", ("recent", 0, "records"), "4"),
    ("status", ("recent", 0), {"time": 2000}),
    ("plan", ("inputs",), [[0, {}]]),
    ("plan", ("names",), {"orders": "orders"}),
    ("plan", ("floor",), None),
    ("plan", ("records",), {"0": "many"}),
    ("done", ("states", "s0"), {"time": 2000, "files": []}),
    ("done", ("states", "s0", "window"), 0),
    ("done", ("states", "s0", "files"), ["/etc/victim"]),
    ("gone-states", ("states", "s0", "files"), ["../victim"]),
    ("gone-states", ("states", "s0", "files"), ["state/../../victim"]),
    ("gone-states", ("states", "s0", "files"), ["plans/000000000002000-000001"]),
    ("lost", ("lost", "0"), [["orders", 5, 8]]),
    ("block-added", ("block", "handle"), ["receivedData/0/log-1", "0", 9]),
    ("block-added", ("block", "handle"), {"class": "", "fields": {}}),
]


@pytest.mark.parametrize(("kind", "path", "value"), IMPOSSIBLE, ids=lambda value: str(value).replace("/", "_"))
def test_a_value_that_no_driver_writes_is_refused(kind: str, path: tuple[Any, ...], value: object) -> None:
    store, fields, known = of(kind)
    store.replace(known.name, format.encode(kind, changed(fields, path, value)))
    assert any(refusal(store, known.name, read) for read in known.readers)


def test_the_refusal_says_what_is_wrong_in_a_line() -> None:
    store, fields, kind = of("plan")
    store.replace(kind.name, format.encode("plan", changed(fields, ("floor",), "soon")))
    with pytest.raises(CorruptRecordError, match=r"its contents are of another form, TypeError: Time\.milliseconds cannot be of type str"):
        read_log(store)
    store.replace(kind.name, format.encode("plan", changed(fields, ("nonce",), 7)))
    with pytest.raises(CorruptRecordError, match=r"TypeError: BatchPlan\.nonce cannot be of type int"):
        read_log(store)


def test_a_long_value_is_not_repeated_in_the_refusal() -> None:
    store, fields, kind = of("plan")
    store.replace(kind.name, format.encode("plan", changed(fields, ("names",), {"x" * 100_000: None})))
    with pytest.raises(CorruptRecordError) as caught:
        read_log(store)
    assert len(str(caught.value)) < 1000


def test_a_file_with_digits_of_other_scripts_in_its_name_is_no_record() -> None:
    store = new_store()
    for name in ("plans/²-1", "epoch-²", "status/²", "settled/1-²-1"):
        store.create(name, b"")
    assert read_log(store).plans == {} and read_status(store) is None and take_epoch(store, 5) == 1


def test_a_newer_version_of_a_record_is_still_told_as_such() -> None:
    store, _, kind = of("status")
    store.replace(kind.name, json.dumps(json.loads(store.read(kind.name)) | {"version": 2, "interval": 0}).encode())
    with pytest.raises(FormatVersionError):
        read_status(store)


def test_functions_that_are_no_base64_are_a_damaged_graph() -> None:
    store, fields, kind = of("graph")
    assert base64.b64decode(fields["worker_functions"]) == b"w"
    store.replace(kind.name, format.encode("graph", fields | {"worker_functions": "YQ"}))
    with pytest.raises(GraphNotRestoredError, match="the file is damaged"):
        read_graph(store)
