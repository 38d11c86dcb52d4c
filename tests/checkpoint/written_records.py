"""Each kind of record of a checkpoint, written and then changed."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from kstream.batch import BatchDelays, BatchOutcome, BatchPlan, InputOutcome, SkippedRecord, StateCheckpoint
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, names, read_log, take_epoch
from kstream.checkpoint.driver_status import BatchFigures, DriverStatus, LastError, Outage, StreamLag, read_status, write_status
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
    outage=Outage(1000, 2000, "no answer", T),
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


GONE = object()


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
