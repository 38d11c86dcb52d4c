"""The stored forms, byte for byte: what is written today can be read for ever, and damage is always found."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from kstream.batch import (
    BatchDelays,
    BatchOutcome,
    BatchPlan,
    InputOutcome,
    OutcomeFigures,
    OutputFigures,
    OutputOperationInfo,
    SkippedRecord,
    StateFigures,
)
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, format, read_log, stored_graph, take_epoch
from kstream.checkpoint.format import decode_plan, encode_plan
from kstream.checkpoint.history import LedgerEntry, PastBatch, acknowledge, read_ledger, read_segment, segments, write_segment
from kstream.checkpoint.input_records import read_connections, write_connections
from kstream.checkpoint.outcomes import read_completion
from kstream.checkpoint.reader import newest_plan, read_meta, write_meta
from kstream.errors import CorruptRecordError, FormatVersionError, GraphNotRestoredError
from kstream.storage import MemoryFileStore

PLAN = BatchPlan(
    time=Time(1_700_000_001_000),
    epoch=3,
    nonce="0123456789abcdef",
    inputs={0: {"ranges": [["orders", 0, 19999, 20500]]}, 1: {}},
    num_records={0: 501, 1: 0},
    floor=Time(1_700_000_000_000),
    after=Time(1_699_999_999_000),
)
PLAN_BYTES = (
    b'{"after":1699999999000,"checksum":"0d6785c44889511908e0f3082d556c7412916763ff8583f84d9270c8747b7a04","epoch":3,'
    b'"floor":1700000000000,"inputs":{"0":{"ranges":[["orders",0,19999,20500]]},"1":{}},"kind":"plan",'
    b'"nonce":"0123456789abcdef","records":{"0":501,"1":0},"time":1700000001000,"version":1,"void":false}'
)
PLAN_WITH_OUTPUTS = (
    b'{"after":1699999999000,"checksum":"6942faad5ce3d5b96d191399b0bf7c9bedecff503a4b0c7f53efb5bea6f30218","epoch":3'
    b',"floor":1700000000000,"inputs":{"0":{"ranges":[["orders",0,19999,20500]]},"1":{}},"kind":"plan","nonce":"0123'
    b'456789abcdef","outputs":["once","orders"],"parallelism":4,"records":{"0":501,"1":0},"time":1700000001000,"vers'
    b'ion":1,"void":false}'
)
PLAN_WITH_KINDS = (
    b'{"after":1699999999000,"checksum":"fe2f186d33f1f653527f9a01785201bf622fc62fecdfd574e6e3c26eb809fdf2","epoch":3'
    b',"floor":1700000000000,"inputs":{"0":{"kind":"kafka","ranges":[["orders",0,19999,20500]]},"1":{"kind":"json"}}'
    b',"kind":"plan","nonce":"0123456789abcdef","records":{"0":501,"1":0},"time":1700000001000,"version":2,"void":fa'
    b"lse}"
)
VOID = BatchPlan(Time(2000), 3, "n", {}, {}, Time(1000), void=True)
VOID_BYTES = (
    b'{"after":0,"checksum":"3485d5f436cca275a874e92d687c5f880801a289d1d1e1ce0aca571d89fcc237","epoch":3,"floor":1000,'
    b'"inputs":{},"kind":"plan","nonce":"n","records":{},"time":2000,"version":1,"void":true}'
)
GIVEN_UP = BatchPlan(Time(2000), 2, "n", {0: {"ranges": [["orders", 0, 5, 9]]}}, {0: 4}, Time(2000))
DONE_WITH_ERRORS = (
    b'{"at":2345,"checksum":"e137b9b2baf1bcceab58505fd6fce29300edb91b9347a69526b257c1b7e11800","counts":{"0":[7]},"epoch":3,'
    b'"errors":{"0":[["map at job.py:7","KeyError",41],["valueDecoder","JSONDecodeError",2]]},"kind":"done","time":2000,"version":1}'
)
DONE_WITH_COUNTS = (
    b'{"at":2345,"checksum":"73ef365e3749b7d8a542ebc07010cd86138361f8c90d66382a0b8ebf97e52c1f","counts":{"0":[7,null'
    b'],"1":[0]},"epoch":3,"kind":"done","time":2000,"version":1}'
)
LOST = (
    b'{"at":2345,"checksum":"a06f88a6c85f817cc443fcd937aa9d2493aa8b0b97e51b194adfb7e7362c96e0","epoch":3,"kind":"los'
    b't","lost":{"0":[{"cause":"retention","detail":"gone","from":5,"partition":0,"topic":"orders","until":8}]},"tim'
    b'e":2000,"version":1}'
)
DONE_WITH_DELAYS = (
    b'{"at":2345,"checksum":"5979655302abc4810408546411e4e0a4cfb024f317804e7c7721c83c3b407fcf","delays":[40,1250],"epo'
    b'ch":3,"kind":"done","time":2000,"version":1}'
)
DONE_WITH_BYTES = (
    b'{"at":2345,"bytes":{"0":7168},"checksum":"6d4f84a02f31f72410f467a0fb9e209aca60364692b06f32e13ffde5ffa0b6a6","coun'
    b'ts":{"0":[7]},"delays":[40,1250,2],"epoch":3,"kind":"done","time":2000,"version":1}'
)
DONE_WITH_OUTPUTS = (
    b'{"at":2345,"checksum":"c0c843ad33f5b9d3751e861f53ad97c069295375f7e623856cd2565322fdeaa4","epoch":3,"kind":"don'
    b'e","outputs":{"once":{"records":7}},"time":2000,"version":1}'
)
SITE = "saveToKafka at job.py:41"
FIGURES = OutcomeFigures(
    StateFigures(written_bytes=4096),
    (
        OutputOperationInfo(
            Time(2000), 1, SITE, SITE, 2040, 3290, None, figures=OutputFigures(transactions=3, written_bytes=40960, commit_p99_ms=12)
        ),
    ),
)
DONE_WITH_FIGURES = (
    b'{"at":2345,"checksum":"32a69b28d88561f034a87d1ea6fd1f80408f0d2db0492f5d402d56cff5f64263","epoch":3,"figures":{"outputs"'
    b':[[1,"saveToKafka at job.py:41",2040,1250,{"commitP99Ms":12,"transactions":3,"writtenBytes":40960}]],"state":{"writtenBy'
    b'tes":4096}},"kind":"done","time":2000,"version":1}'
)
SEGMENT_WITH_FIGURES = (
    b'{"batches":[{"counts":{"0":[5]},"delays":[40,1250],"figures":{"outputs":[[1,"saveToKafka at job.py:41",2040,1250,{"comm'
    b'itP99Ms":12,"transactions":3,"writtenBytes":40960}]],"state":{"writtenBytes":4096}},"plan":{"after":0,"epoch":3,"floor":'
    b'1000,"inputs":{},"nonce":"n","records":{},"time":2000,"void":false}}],"checksum":"b65133398185e31452115bcb021846b101b13d'
    b'ab3ec1b5d68d4da10c4bc8bcd7","kind":"history","version":1}'
)
SEGMENT = (
    b'{"batches":[{"counts":{"0":[5,null]},"delays":[40,1250],"plan":{"after":1699999999000,"epoch":3,"floor":17000000'
    b'00000,"inputs":{"0":{"ranges":[["orders",0,19999,20500]]},"1":{}},"nonce":"0123456789abcdef","records":{"0":501,'
    b'"1":0},"time":1700000001000,"void":false},"skipped":[{"offset":20001,"partition":0,"stream":0,"topic":"orders"}]'
    b'},{"counts":null,"plan":{"after":0,"epoch":3,"floor":1000,"inputs":{},"nonce":"n","records":{},"time":2000,"void'
    b'":true}}],"checksum":"85ac158e4454c16289306eed6745b55452c61795786b9947da0f0f91faa73911","kind":"history","versio'
    b'n":1}'
)
META_BYTES = (
    b'{"checksum":"d5e1584585094f9902ef9d32bbccfca597378c7e1cfe59278d0171e2d07873ec","interval":1000,"kind":"meta",'
    b'"version":1,"zero_time":1700000000000}'
)
NOTES = {
    "done/000000000002000-000002": (
        b'{"at":2345,"checksum":"e0ebe52c8004c9f08f1a473b05570d0ccf0222de163f83faabce9ba02a75aa5c","epoch":3,"kind":"done",'
        b'"time":2000,"version":1}'
    ),
    "failed/000000000002000-000002-000003": (
        b'{"at":2345,"checksum":"8115ce02c0b4b6c123a8bc4846149a28d6fd8260f36bd398d414cf4b4ab5321a","epoch":3,"kind":"failed",'
        b'"reason":"boom","time":2000,"version":1}'
    ),
    "given-up/000000000002000-000002": (
        b'{"at":2345,"checksum":"01e8aa5f3b1efc772961280339101e24ca76321f8e849a6b1cfbc671541421da","epoch":3,"failures":'
        b'4,"inputs":{"0":{"ranges":[["orders",0,5,9]]}},"kind":"given-up","time":2000,"version":1}'
    ),
}
EPOCH_BYTES = (
    b'{"at":5000,"checksum":"687c922dd9caac95dc12287a2b0237c94cac321f6e0288d565bf0b9382873443","epoch":4,"kind":"epoch",'
    b'"nonce":"ab","version":1}'
)
GRAPH_1_BYTES = (
    b'{"checksum":"7e464b32dcd73880965c5eaa8071dcea52c4b76c0dbb72652c14f2aa0390cf8d","code":{"":"d1","jobs":"d2"},'
    b'"functions":"gHBpY2tsZQ==","graph":{"calls":[],"interval":1000},"kind":"graph","python":"3.11","version":1}'
)
GRAPH_BYTES = (
    b'{"checksum":"f9061cb6b54ab65b604a1d75e9a7814e60ef9fe0bc73456d6e1dab8466bc72c4",'
    b'"driver_functions":"gGRyaXZlcg==","graph":{"calls":[],"interval":1000},"kind":"graph","mode":"graph",'
    b'"on_workers":[1],"python":"3.11","version":2,"worker_functions":"gHdvcmtlcnM="}'
)
CONNECTIONS_BYTES = (
    b'{"checksum":"83fc2da1186695eba3777a794b199bf0520d03fb4284e90c148a35e053657e0f",'
    b'"kind":"connections","streams":{"1":{"input":"kafka-direct","params":{"bootstrap.servers":"h:1"}}},"version":1}'
)


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def test_the_bytes_of_a_plan() -> None:
    assert encode_plan(PLAN) == PLAN_BYTES
    assert decode_plan(PLAN_BYTES, "p") == PLAN


def test_the_bytes_of_a_plan_whose_inputs_say_their_kind() -> None:
    plan = replace(PLAN, inputs={0: {"kind": "kafka", **PLAN.inputs[0]}, 1: {"kind": "json"}})
    assert encode_plan(plan) == PLAN_WITH_KINDS
    assert decode_plan(PLAN_WITH_KINDS, "p") == plan


def test_a_kstream_that_guesses_the_kinds_of_inputs_refuses_a_plan_that_says_them(
    store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would store the next plan without them. These are its tables of versions."""
    store.create("plans/001700000001000-000003", PLAN_WITH_KINDS)
    monkeypatch.setattr(format, "VERSIONS", {"graph": 2})
    monkeypatch.setattr(format, "_ALSO_READ", {})
    with pytest.raises(FormatVersionError, match="plans/001700000001000-000003 has format version 2, this kstream reads up to 1: upgrade"):
        read_log(store)
    with pytest.raises(FormatVersionError):
        newest_plan(store)


def test_a_plan_of_before_may_have_an_input_with_a_field_kind_of_its_own() -> None:
    data = format.encode("plan", format.plan_fields(replace(PLAN, inputs={0: {"kind": "fast"}, 1: {}})), 1)
    assert decode_plan(data, "p").inputs == {0: {"kind": "fast"}, 1: {}}


def test_the_bytes_of_a_void_plan() -> None:
    assert encode_plan(VOID) == VOID_BYTES
    assert decode_plan(VOID_BYTES, "p") == VOID


def test_the_bytes_and_the_name_of_the_meta_record(store: MemoryFileStore) -> None:
    meta = Meta(Time(1_700_000_000_000), Duration(1000))
    write_meta(store, meta)
    assert store.read("meta") == META_BYTES
    assert read_meta(store) == meta


def test_the_bytes_and_the_names_of_what_becomes_of_a_batch(store: MemoryFileStore) -> None:
    log = PlanLog(store, 3)
    log.complete(Time(2000), 2, BatchOutcome(2345))
    log.fail(Time(2000), 2, 2345, "boom")
    log.give_up(GIVEN_UP, 2345, 4)
    for name, data in NOTES.items():
        assert store.read(name) == data
    assert [store.list(folder) for folder in ("done", "failed", "given-up")] == [[n.split("/")[1]] for n in NOTES]


def test_the_bytes_of_what_a_batch_found(store: MemoryFileStore) -> None:
    """Written with its end: how many records each range held, and, before that, what was lost."""
    lost = {"topic": "orders", "partition": 0, "from": 5, "until": 8, "cause": "retention", "detail": "gone"}
    outcomes = {0: InputOutcome([7, None], [lost]), 1: InputOutcome([0])}
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, outcomes))
    assert store.read("done/000000000002000-000002") == DONE_WITH_COUNTS
    assert store.read("lost/000000000002000-000002-000003") == LOST
    [entry] = read_ledger(store)
    assert entry == LedgerEntry("lost", Time(2000), 2345, 3, {0: [lost]})


def test_the_bytes_of_a_completion_with_record_errors(store: MemoryFileStore) -> None:
    errors = [("map at job.py:7", "KeyError", 41), ("valueDecoder", "JSONDecodeError", 2)]
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, {0: InputOutcome([7], errors=errors), 1: InputOutcome()}))
    assert store.read("done/000000000002000-000002") == DONE_WITH_ERRORS


def test_the_bytes_of_a_completion_with_the_delays_of_its_batch(store: MemoryFileStore) -> None:
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, delays=BatchDelays(40, 1250)))
    assert store.read("done/000000000002000-000002") == DONE_WITH_DELAYS
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.delays == BatchDelays(40, 1250) and found.delays.total_ms == 1290


def test_the_bytes_of_a_completion_with_the_bytes_of_its_records_after_a_second_try(store: MemoryFileStore) -> None:
    outcomes = {0: InputOutcome([7], num_bytes=7168), 1: InputOutcome()}
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, outcomes, delays=BatchDelays(40, 1250, tries=2)))
    assert store.read("done/000000000002000-000002") == DONE_WITH_BYTES
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.delays == BatchDelays(40, 1250, tries=2) and found.num_bytes == {0: 7168}


def test_the_bytes_of_a_completion_with_what_an_output_stores(store: MemoryFileStore) -> None:
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, outputs={"once": {"records": 7}}))
    assert store.read("done/000000000002000-000002") == DONE_WITH_OUTPUTS
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.outputs == {"once": {"records": 7}}


def test_the_bytes_of_a_completion_with_the_figures_of_states_and_outputs(store: MemoryFileStore) -> None:
    """150 bytes more than without: no partition has a figure of its own."""
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345, figures=FIGURES))
    assert store.read("done/000000000002000-000002") == DONE_WITH_FIGURES
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.figures == FIGURES


def test_a_figure_that_a_newer_kstream_has_declared_is_left_out(store: MemoryFileStore) -> None:
    outputs = [[1, SITE, 2040, 1250, {"transactions": 3, "writtenBytes": 40960, "commitP99Ms": 12, "keys": 7}, "more"]]
    figures = {"state": {"writtenBytes": 4096, "keys": 7}, "outputs": outputs}
    store.create("done/000000000002000-000002", format.encode("done", {"time": 2000, "at": 2345, "epoch": 3, "figures": figures}))
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.figures == FIGURES


@pytest.mark.parametrize(
    "figures", [[], {"state": 7}, {"state": {"writtenBytes": "x"}}, {"outputs": [[1, "print", 2040]]}, {"outputs": [[1, 2, 3, 4, {}]]}]
)
def test_figures_of_another_form_are_a_damaged_record(store: MemoryFileStore, figures: object) -> None:
    store.create("done/000000000002000-000002", format.encode("done", {"time": 2000, "at": 2345, "epoch": 3, "figures": figures}))
    with pytest.raises(CorruptRecordError):
        read_completion(store, Time(2000), 2)


def test_the_bytes_of_a_plan_for_an_output_that_stores_data() -> None:
    plan = replace(PLAN, outputs=("once", "orders"), parallelism=4)
    assert encode_plan(plan) == PLAN_WITH_OUTPUTS
    assert decode_plan(PLAN_WITH_OUTPUTS, "plans/the-file") == plan and decode_plan(PLAN_BYTES, "plans/the-file") == PLAN


def test_a_completion_of_an_older_kstream_has_neither_delays_nor_figures(store: MemoryFileStore) -> None:
    PlanLog(store, 3).complete(Time(2000), 2, BatchOutcome(2345))
    found = read_completion(store, Time(2000), 2)
    assert found is not None and found.delays is None and found.figures == OutcomeFigures()


def test_the_bytes_of_a_segment_of_the_history(store: MemoryFileStore) -> None:
    ended = PastBatch(PLAN, {0: [5, None]}, (SkippedRecord(0, "orders", 0, 20001),), BatchDelays(40, 1250))
    write_segment(store, 3, [ended, PastBatch(VOID, None)])
    (name,) = segments(store)
    assert store.read(name) == SEGMENT
    assert read_segment(store, name) == [ended, PastBatch(VOID, None)]


def test_the_bytes_of_a_segment_with_the_figures_of_a_batch(store: MemoryFileStore) -> None:
    ended = PastBatch(BatchPlan(Time(2000), 3, "n", {}, {}, Time(1000)), {0: [5]}, delays=BatchDelays(40, 1250), figures=FIGURES)
    write_segment(store, 3, [ended])
    (name,) = segments(store)
    assert store.read(name) == SEGMENT_WITH_FIGURES
    assert read_segment(store, name) == [ended]


def test_the_ledger_tells_what_a_batch_that_was_given_up_should_have_read(store: MemoryFileStore) -> None:
    PlanLog(store, 3).give_up(GIVEN_UP, 2345, 4)
    assert read_ledger(store) == [LedgerEntry("given-up", Time(2000), 2345, 3, {0: {"ranges": [["orders", 0, 5, 9]]}}, 4)]


def test_the_bytes_and_the_name_of_an_epoch(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 3):
        assert take_epoch(store, at_ms=number) == number
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=0))
    assert take_epoch(store, at_ms=5000) == 4
    assert store.list() == ["epoch-1", "epoch-2", "epoch-3", "epoch-4"]
    assert store.read("epoch-4") == format.encode("epoch", {"epoch": 4, "at": 5000, "nonce": "0" * 32})
    assert format.encode("epoch", {"epoch": 4, "at": 5000, "nonce": "ab"}) == EPOCH_BYTES


def test_the_bytes_and_the_name_of_the_graph(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_graph, "python_version", lambda: "3.11")
    record = stored_graph.GraphRecord({"interval": 1000, "calls": []}, [1], b"\x80workers", b"\x80driver")
    stored_graph.write_graph(store, record)
    assert store.read("graph") == GRAPH_BYTES
    assert stored_graph.read_graph(store) == record


def test_the_bytes_and_the_name_of_the_connections(store: MemoryFileStore) -> None:
    write_connections(store, {1: ("kafka-direct", {"bootstrap.servers": "h:1"})})
    assert store.read("connections") == CONNECTIONS_BYTES
    assert read_connections(store, "kafka-direct") == {1: {"bootstrap.servers": "h:1"}}
    assert read_connections(store, "another") == {}


def test_the_name_of_a_plan_tells_its_time_and_epoch(store: MemoryFileStore) -> None:
    PlanLog(store, 3).write_plan(PLAN)
    assert store.list("plans") == ["001700000001000-000003"]
    assert store.read("plans/001700000001000-000003") == PLAN_BYTES


@pytest.mark.parametrize("data", [PLAN_BYTES, PLAN_WITH_KINDS, VOID_BYTES], ids=["plan", "with kinds", "void"])
def test_any_flipped_byte_of_a_plan_is_refused_with_its_name(data: bytes) -> None:
    for place in range(len(data)):
        for flip in (*(1 << bit for bit in range(8)), 0xFF, data[place], data[place] ^ ord("e"), data[place] ^ ord("N")):
            damaged = data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :]
            if damaged == data:
                continue
            with pytest.raises((CorruptRecordError, FormatVersionError), match="plans/the-file"):
                decode_plan(damaged, "plans/the-file")


def test_any_cut_of_a_plan_is_refused_with_its_name() -> None:
    for length in range(len(PLAN_BYTES)):
        with pytest.raises(CorruptRecordError, match="plans/the-file"):
            decode_plan(PLAN_BYTES[:length], "plans/the-file")


@pytest.mark.parametrize("data", [PLAN_BYTES + b" ", PLAN_BYTES + b"\n", b"\xef\xbb\xbf" + PLAN_BYTES, b"[]", b"null", b"7"])
def test_what_is_not_exactly_what_was_written_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_plan(data, "p")


def test_a_record_of_another_kind_is_no_plan() -> None:
    with pytest.raises(CorruptRecordError, match="kind 'plan'"):
        decode_plan(META_BYTES, "p")


def test_the_message_of_a_damaged_plan_says_the_only_way_past() -> None:
    with pytest.raises(CorruptRecordError, match="--forget-batch") as caught:
        decode_plan(b"junk", "plans/x")
    assert caught.value.facts["path"] == "plans/x"


def test_a_record_of_a_newer_kstream_is_refused_with_both_versions() -> None:
    newer = json.loads(PLAN_BYTES) | {"version": 3, "something": "new"}
    with pytest.raises(FormatVersionError, match="upgrade") as caught:
        decode_plan(json.dumps(newer).encode(), "plans/x")
    assert (caught.value.facts["version"], caught.value.facts["supported"], caught.value.facts["path"]) == (3, 2, "plans/x")


def test_values_that_json_does_not_know_are_not_stored() -> None:
    with pytest.raises(ValueError):
        format.encode("plan", {"x": float("nan")})
    with pytest.raises(TypeError):
        format.encode("plan", {"x": object()})


def test_a_damaged_plan_makes_the_log_unreadable_by_name(store: MemoryFileStore) -> None:
    PlanLog(store, 3).write_plan(PLAN)
    name = "plans/001700000001000-000003"
    store.replace(name, PLAN_BYTES.replace(b"20500", b"20501"))
    with pytest.raises(CorruptRecordError, match=name):
        read_log(store)


@pytest.mark.parametrize("damaged", [GRAPH_BYTES[:-1], GRAPH_BYTES.replace(b"gGRy", b"gGRz"), b"", b"null"])
def test_a_damaged_graph_is_an_error_that_says_the_ways_past(store: MemoryFileStore, damaged: bytes) -> None:
    store.replace("graph", damaged)
    with pytest.raises(GraphNotRestoredError, match=r"damaged.*remove this file: setup is then called, and offsets and state continue"):
        stored_graph.read_graph(store)


def test_a_graph_of_another_python_or_of_a_newer_kstream_is_an_error_too(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.replace("graph", GRAPH_BYTES)
    monkeypatch.setattr(stored_graph, "python_version", lambda: "3.10")
    with pytest.raises(GraphNotRestoredError, match=r"Python 3\.11 pickled its functions, and this is Python 3\.10") as caught:
        stored_graph.read_graph(store)
    assert caught.value.facts["path"] == store.path("graph")
    store.replace("graph", json.dumps(json.loads(GRAPH_BYTES) | {"version": 3}).encode())
    with pytest.raises(GraphNotRestoredError, match="version 3, this kstream reads up to 2"):
        stored_graph.read_graph(store)


def test_a_graph_of_version_1_is_none(store: MemoryFileStore) -> None:
    assert stored_graph.read_graph(store) is None and stored_graph.remove_graph(store) is None
    store.replace("graph", GRAPH_1_BYTES)
    assert stored_graph.read_graph(store) is None
    assert stored_graph.remove_graph(store) == 1 and not store.exists("graph")


def test_the_bytes_and_the_name_of_an_acknowledgement() -> None:
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    entry = LedgerEntry("lost", Time(1_700_000_001_000), 0, 3, {}, name="lost/001700000001000-000003-000004")
    assert acknowledge(store, entry, 1_700_000_009_000, "host-1, pid 4711")
    assert not acknowledge(store, entry, 1_700_000_010_000, "another"), "the first one stays"
    name = "acknowledged/lost-001700000001000-000003-000004"
    assert store.list("acknowledged") == [name.partition("/")[2]]
    assert store.read(name) == (
        b'{"at":1700000009000,"by":"host-1, pid 4711","checksum":"e586e3f4b40c1bcad4b595b2198b8db05d83ea488a36'
        b'd2ab90005f30d9cd4810","entry":"lost/001700000001000-000003-000004","kind":"acknowledged","version":1}'
    )
