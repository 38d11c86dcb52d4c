"""The two receivers under a supervisor, with threads; and what createStream makes."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, utf8_decoder
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.zookeeper import KafkaReceiver, ReliableKafkaReceiver
from kstream_kafka.zookeeper.group_member import ReceiverParts
from kstream_kafka.zookeeper.kafka_receiver import SECRETS, Decoders
from kstream_kafka.zookeeper.stored_offsets import AfterStoring, OnTimer
from pyspark import StorageLevel
from pyspark.cloudpickle import dumps, loads

from kstream.dstream import DStream
from kstream.dstream.recipe import Recorder
from kstream.errors import MissingDependencyError
from kstream.receiver import Receiver
from kstream.receiver.block_generator import BlockGenerator, BlockIds
from kstream.testing import ManualClock
from tests.kstream_kafka.zookeeper.fakes import FakeGroup, FakeHost, FakeReader, log, settings

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 20.0
REQUIRED = inspect.Parameter.empty


class Supervisor:
    """Makes real block generators on a clock that the test moves, and notes what is stored."""

    def __init__(self, group: FakeGroup) -> None:
        self.clock = ManualClock(1000)
        self.host = FakeHost(group)
        self.stored = threading.Semaphore(0)

    def create_block_generator(self, listener: Any) -> BlockGenerator:
        return BlockGenerator(listener, BlockIds(0), self.clock, 10)

    def store_all(self, records: Any, metadata: Any) -> None:
        self.host.storeAll(records, metadata)
        self.stored.release()

    def report_error(self, message: str, error: BaseException | None) -> None:
        self.host.reportError(message, error)

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None:
        self.host.restart(message, error)
        self.stored.release()


class ReadOnce(FakeReader):
    """Lets the test know that all there was has been handed over."""

    def __init__(self, end: int) -> None:
        super().__init__(log(1, end))
        self.at_end = threading.Event()

    def read(self, most: int) -> Any:
        chunk = super().read(most)
        if not chunk.records:
            self.at_end.set()
        return chunk


def run(kind: type[KafkaReceiver], group: FakeGroup, reader: ReadOnce) -> tuple[KafkaReceiver, Supervisor]:
    supervisor: Any = Supervisor(group)
    receiver = kind(settings(), StorageLevel.MEMORY_ONLY, ReceiverParts(group.join, lambda _: reader, lambda: supervisor.clock))
    receiver.attach(supervisor)
    receiver.onStart()
    assert reader.at_end.wait(PATIENCE)
    supervisor.clock.wait_for_waiters()
    return receiver, supervisor


def test_records_are_stored_by_the_block_and_acknowledged_then() -> None:
    group = FakeGroup(offsets={("t", 0): 0})
    receiver, supervisor = run(ReliableKafkaReceiver, group, ReadOnce(100))
    assert group.done == []
    supervisor.clock.advance(10)
    assert supervisor.stored.acquire(timeout=PATIENCE)
    receiver.onStop()
    assert group.done == [("stored", 100), ("committed", {("t", 0): 100})]
    assert group.members == {} and group.owners == {}


@pytest.mark.parametrize("kind", [KafkaReceiver, ReliableKafkaReceiver])
def test_a_stop_stores_what_was_read_and_acknowledges_it(kind: type[KafkaReceiver]) -> None:
    group = FakeGroup(offsets={("t", 0): 0})
    receiver, supervisor = run(kind, group, ReadOnce(100))
    receiver.onStop()
    assert len(supervisor.host.stored) == 100 and group.offsets == {("t", 0): 100}
    receiver.onStop()


def test_a_receiver_that_was_stopped_starts_again_where_the_group_stands() -> None:
    group, reader = FakeGroup(offsets={("t", 0): 0}), ReadOnce(100)
    receiver, supervisor = run(ReliableKafkaReceiver, group, reader)
    receiver.onStop()
    reader.logs["t", 0] = (0, 150)
    reader.at_end.clear()
    receiver.onStart()
    assert reader.at_end.wait(PATIENCE)
    receiver.onStop()
    assert supervisor.host.stored == [f"0:{n}" for n in range(150)] and group.joined == 2


def test_what_a_thread_cannot_get_over_is_a_restart() -> None:
    def away(_settings: Any, _stop: Any) -> Any:
        raise OSError("no ZooKeeper")

    supervisor: Any = Supervisor(FakeGroup())
    receiver = ReliableKafkaReceiver(settings(), None, ReceiverParts(away, lambda _: FakeReader({}), lambda: supervisor.clock))
    receiver.attach(supervisor)
    receiver.onStart()
    assert supervisor.stored.acquire(timeout=PATIENCE)
    ((message, error),) = supervisor.host.restarts
    assert "group 'g' at ZooKeeper z:2181 cannot continue" in message and str(error) == "no ZooKeeper"
    receiver.onStop()


@pytest.mark.parametrize("kind", [KafkaReceiver, ReliableKafkaReceiver])
def test_a_receiver_travels_with_its_settings_and_without_clients(kind: type[KafkaReceiver]) -> None:
    receiver, _ = run(kind, FakeGroup(), ReadOnce(1))
    receiver._parts = kind(settings())._parts  # the fakes would not travel
    there = loads(dumps(receiver))
    assert type(there) is kind and there.settings == receiver.settings and there._member is None
    assert there.storageLevel == StorageLevel.MEMORY_ONLY and there.preferredLocation() is None
    receiver.onStop()


def test_the_two_ways_to_acknowledge() -> None:
    assert isinstance(ReliableKafkaReceiver(settings())._acknowledgement(0), AfterStoring)
    assert isinstance(KafkaReceiver(settings())._acknowledgement(0), OnTimer)


# -- createStream


class FakeStream:
    """What receiverStream would return."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.made: Any = None

    def mapPartitions(self, function: Any) -> FakeStream:
        self.made = function
        return self


class FakeContext:
    def __init__(self) -> None:
        self._recorder = Recorder()

    def receiverStream(self, receiver: Receiver) -> Any:
        return FakeStream(receiver)


def create(given: dict[str, Any] | None = None, **more: Any) -> tuple[FakeContext, Any]:
    ssc: Any = FakeContext()
    return ssc, KafkaUtils.createStream(ssc, "z:2181", "g", {"t": 2}, {"bootstrap.servers": "k:9092", **(given or {})}, **more)


def test_the_arguments_are_those_of_spark_2_4() -> None:
    parameters = inspect.signature(KafkaUtils.createStream).parameters.values()
    assert [(p.name, p.default) for p in parameters if p.kind != p.KEYWORD_ONLY] == [
        ("ssc", REQUIRED), ("zkQuorum", REQUIRED), ("groupId", REQUIRED), ("topics", REQUIRED), ("kafkaParams", None),
        ("storageLevel", StorageLevel.MEMORY_AND_DISK_2), ("keyDecoder", utf8_decoder), ("valueDecoder", utf8_decoder),
    ]  # fmt: skip


@pytest.mark.parametrize(("reliable", "kind"), [(None, ReliableKafkaReceiver), (True, ReliableKafkaReceiver), (False, KafkaReceiver)])
def test_the_receiver_is_the_reliable_one_unless_the_other_is_asked_for(reliable: bool | None, kind: type) -> None:
    _, stream = create(reliable=reliable, storageLevel=StorageLevel.MEMORY_ONLY)
    assert type(stream.receiver) is kind and stream.receiver.storageLevel == StorageLevel.MEMORY_ONLY
    assert stream.receiver.settings.topics == {"t": 2}


def test_records_are_decoded_in_the_batch_as_in_spark_2_4() -> None:
    _, stream = create(valueDecoder=len)
    assert loads(dumps(stream.made))([(b"k", b"value"), (None, b"")]) == [("k", 5), (None, 0)]
    assert create(keyDecoder=None, valueDecoder=None)[1].made is None
    assert Decoders(None, utf8_decoder)([(b"k", b"v")]) == [(b"k", "v")]


def test_a_stream_with_a_secret_in_its_parameters_is_not_stored() -> None:
    ssc, _ = create({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "planted"})
    assert ssc._recorder.why_not == SECRETS
    assert create()[0]._recorder.why_not is None


def test_what_cannot_work_is_an_error_at_once() -> None:
    ssc: Any = FakeContext()
    with pytest.raises(TypeError, match="topics should be dict"):
        KafkaUtils.createStream(ssc, "z:2181", "g", ["t"], {"bootstrap.servers": "k"})  # pyright: ignore
    with pytest.raises(KafkaConfigError, match="Kafka 4 registers none there"):
        KafkaUtils.createStream(ssc, "z:2181", "g", {"t": 1})


def test_without_kazoo_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kstream-spark\[zookeeper\]'"):
        create()


def test_kazoo_is_loaded_by_a_receiver_that_joins_and_by_nothing_else() -> None:
    code = "import sys, kstream_kafka.zookeeper; kstream_kafka.KafkaUtils; sys.exit('kazoo' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": ".:connectors"}, check=False).returncode
        == 0
    )


def test_a_stored_graph_makes_the_stream_again(sc: Any) -> None:
    from kstream import StreamingContext

    ssc = StreamingContext(sc, 1)
    stream = KafkaUtils.createStream(ssc, "z:2181", "g", {"t": 1}, {"bootstrap.servers": "k:9092"})
    assert isinstance(stream, DStream) and ssc._recorder.why_not is None
    assert [call["call"] for call in ssc._recorder.calls] == ["receiverStream", "mapPartitions"]
    assert all(loads(dumps(function)) is not None for function in ssc._recorder.functions)
    ssc.stop(stopSparkContext=False)
