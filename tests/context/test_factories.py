"""The context's input streams on a real SparkContext: files, sockets, receivers, queues; stored with the graph and made again."""

from __future__ import annotations

import os
import socket
import threading
import time as real_time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark import SparkContext, StorageLevel

from kstream import DStream, Receiver, StreamingContext
from kstream.dstream import FileInputDStream, ReceiverInputDStream
from kstream.errors import ConfigurationError, FileLostError, RpcUnreachableError
from kstream.receiver.block_reading import Replica
from kstream.rpc import RpcClient, RpcCredentials
from kstream.spark.hadoop_directory import HadoopDirectory
from kstream.testing import ManualClock
from kstream.wal.settings import WRITE_AHEAD_LOG
from tests.harness import INTERVAL, START
from tests.inputs import stamp_memory, write
from tests.streams import Stream

PATIENCE = 60.0
SEEN: list[list[Any]] = []
CALLED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()
    CALLED.clear()


@pytest.fixture
def stream(sc: SparkContext) -> Stream:
    return Stream(sc)


def note(rdd: Any) -> None:
    SEEN.append(rdd.collect())


def ticks(stream: Stream, *prepare: Callable[[], object]) -> list[list[Any]]:
    """One batch after each of these; what its output saw."""
    for step in prepare:
        step()
        stream.tick()
    stream.stop(graceful=False)
    stream.ssc.awaitTermination(1)
    return SEEN


def arrives(stream: Stream, path: Path | str, text: str) -> Callable[[], None]:
    return lambda: write(path, text, stream.clock.time_ms() + INTERVAL // 2)


# -- files


def test_lines_of_files_are_read_by_the_workers(stream: Stream, tmp_path: Path) -> None:
    stream.ssc.textFileStream(str(tmp_path)).map(lambda line: (int(line), os.getpid() != 0)).foreachRDD(note)
    stream.start()
    lines = [f"{number}\n" for number in range(10)]
    seen = ticks(stream, arrives(stream, tmp_path / "a", "".join(lines)), lambda: None, arrives(stream, tmp_path / "b", "7"))
    assert [[number for number, _ in batch] for batch in seen] == [list(range(10)), [], [7]]


def test_records_of_a_fixed_length_are_bytes(stream: Stream, tmp_path: Path) -> None:
    """Spark behaviour IS3."""
    stream.ssc.binaryRecordsStream(f"file://{tmp_path}", 2).foreachRDD(note)
    stream.start()
    assert ticks(stream, arrives(stream, tmp_path / "a", "aabb"), arrives(stream, tmp_path / "b", "cc")) == [[b"aa", b"bb"], [b"cc"]]


def test_a_large_file_is_several_partitions(sc: SparkContext, tmp_path: Path, setting: Callable[[str, str], None]) -> None:
    setting("spark.streaming.kstream.fileStream.splitBytes", "100")
    stream = Stream(sc)
    stream.ssc.textFileStream(str(tmp_path)).foreachRDD(lambda rdd: SEEN.append(rdd.glom().collect()))
    stream.start()
    lines = [f"{number:03d}" for number in range(60)]
    (parts,) = ticks(stream, arrives(stream, tmp_path / "a", "\n".join(lines)))
    assert len(parts) == 3 and [line for part in parts for line in part] == lines


def test_a_reader_and_a_filter_of_the_users(stream: Stream, tmp_path: Path) -> None:
    """Spark behaviours IS4 and IS5."""
    write(tmp_path / "x" / "there.csv", "1;2", START - 1000)

    def numbers(file: Any, path: str) -> list[tuple[str, int]]:
        return [(os.path.basename(path), int(n)) for n in file.read().split(b";")]

    made = stream.ssc.fileStream(f"{tmp_path}/*/", lambda path: path.endswith(".csv"), newFilesOnly=False, reader=numbers)
    made.foreachRDD(note)
    stream.start()
    write(tmp_path / "y" / "no.txt", "x", START + 1)
    seen = ticks(stream, lambda: None, arrives(stream, tmp_path / "y" / "new.csv", "3"))
    assert seen == [[("there.csv", 1), ("there.csv", 2)], [("new.csv", 3)]]


def test_what_lies_in_the_drivers_memory_reaches_the_workers(stream: Stream) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    stream.ssc.textFileStream(url).foreachRDD(note)
    stream.start()

    def put() -> None:
        fsspec.filesystem("memory").pipe_file(f"{url}/a", b"1\n2\n")
        stamp_memory(f"{url}/a", stream.clock.time_ms() + 1)

    assert ticks(stream, put) == [["1", "2"]]


def test_a_file_that_is_gone_fails_the_batch_with_the_workers_own_words(stream: Stream, tmp_path: Path) -> None:
    gone = tmp_path / "a"
    stream.ssc.textFileStream(str(tmp_path)).foreachRDD(lambda rdd: (gone.unlink(), rdd.count()))
    stream.start()
    arrives(stream, gone, "1\n")()
    stream.tick()
    with pytest.raises(Exception, match=f"{FileLostError.__name__}: {gone}"):
        stream.ssc.awaitTermination(PATIENCE)
    stream.stop(graceful=False)


def test_a_record_length_must_be_above_zero(stream: Stream) -> None:
    with pytest.raises(ConfigurationError, match="recordLength"):
        stream.ssc.binaryRecordsStream("/in", 0)


def test_a_url_with_a_password_is_refused_before_anything_could_repeat_it(stream: Stream) -> None:
    with pytest.raises(ConfigurationError, match=r"ftp://…@host/in"):
        stream.ssc.textFileStream("ftp://me:secret@host/in")


# -- files by Hadoop


@pytest.fixture
def by_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths without a scheme lie where Hadoop says: as on a cluster whose fs.defaultFS is not the local disk."""
    monkeypatch.setattr("kstream.context.factories.default_file_system", lambda _sc: "hdfs://namenode")


@pytest.mark.usefixtures("by_hadoop")
def test_a_path_that_is_hadoops_is_listed_and_read_by_hadoop(stream: Stream, tmp_path: Path) -> None:
    """IS5, IS6 through Hadoop's own client (on the local disk here)."""
    made = stream.ssc.textFileStream(f"{tmp_path}/*/")
    assert isinstance(made, FileInputDStream) and isinstance(made._source, HadoopDirectory)
    made.foreachRDD(note)
    stream.start()
    write(tmp_path / "x" / "old", "old", START - 1)
    write(tmp_path / "x" / "_hidden", "x", START + 1)
    write(tmp_path / "x" / "a{b}*c d", "odd\nname", START + 1)
    seen = ticks(stream, lambda: None, lambda: None, arrives(stream, tmp_path / "y" / "b", "1\n2"))
    assert seen == [["odd", "name"], [], ["1", "2"]]


@pytest.mark.usefixtures("by_hadoop")
def test_records_and_readers_work_on_hadoops_files(stream: Stream, tmp_path: Path) -> None:
    stream.ssc.binaryRecordsStream(str(tmp_path), 2).foreachRDD(note)
    stream.ssc.fileStream(str(tmp_path), reader=lambda file, path: [(os.path.basename(path), file.read())]).foreachRDD(note)
    stream.start()
    assert ticks(stream, arrives(stream, tmp_path / "a", "aabb")) == [[b"aa", b"bb"], [("a", b"aabb")]]


@pytest.mark.usefixtures("by_hadoop")
def test_hadoops_directory_that_cannot_be_listed_is_a_batch_without_files(
    stream: Stream, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made: Any = stream.ssc.textFileStream("nosuchscheme:/in")
    made.foreachRDD(note)
    stream.start()
    assert ticks(stream, lambda: None) == [[]]
    assert any("nosuchscheme" in message for message in caplog.messages)


# -- sockets and receivers


def test_lines_of_a_socket(stream: Stream) -> None:
    """Spark behaviour IS1."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        made: Any = stream.ssc.socketTextStream("127.0.0.1", server.getsockname()[1], StorageLevel.MEMORY_ONLY)
        made.foreachRDD(note)
        stream.start()
        connection, _ = server.accept()

        def send() -> None:
            connection.sendall(b"1\n2\n3\n4\n5\n")
            wait_for(lambda: received(made) == 5)

        assert ticks(stream, send) == [["1", "2", "3", "4", "5"]]
        connection.close()
    assert stream.counter.infos[0].numRecords() == 5


def test_a_converter_of_the_users_makes_records_of_a_socket(stream: Stream) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        made: Any = stream.ssc.socketStream("127.0.0.1", server.getsockname()[1], lambda file: iter(lambda: file.read(1), b""))
        made.foreachRDD(note)
        stream.start()
        connection, _ = server.accept()

        def send() -> None:
            connection.sendall(b"abc")
            wait_for(lambda: received(made) == 3)

        assert ticks(stream, send) == [[b"a", b"b", b"c"]]
        connection.close()


class Counting(Receiver):
    """Stores the numbers below `most`, and again after each restart."""

    def __init__(self, most: int) -> None:
        super().__init__(StorageLevel.MEMORY_ONLY)
        self.most = most

    def onStart(self) -> None:
        threading.Thread(target=lambda: [self.store(number) for number in range(self.most)], daemon=True).start()

    def onStop(self) -> None:
        pass


def test_a_receiver_of_the_users_own(stream: Stream) -> None:
    made: Any = stream.ssc.receiverStream(Counting(1000))
    made.map(lambda x: x + 1).foreachRDD(note)
    stream.start()
    wait_for(lambda: received(made) == 1000)
    assert ticks(stream, lambda: None) == [list(range(1, 1001))]


def store_of_ten_numbers(stream: Stream) -> tuple[Replica, RpcCredentials]:
    """Where they lie once a stream has received them, and by what that store knows its driver."""
    made: Any = stream.ssc.receiverStream(Counting(10))
    made.foreachRDD(note)
    stream.start()
    wait_for(lambda: received(made) == 10)
    inside: Any = stream.ssc._engine._received  # pyright: ignore
    [store] = inside._tracker.stores()
    return store, inside._reader._credentials


ENCRYPT, SPARKS = "spark.streaming.kstream.rpc.encrypt", "spark.network.crypto.enabled"


@pytest.mark.parametrize(
    ("settings", "encrypted"),
    [({ENCRYPT: "true"}, True), ({SPARKS: "true"}, True), ({SPARKS: "true", ENCRYPT: "false"}, False)],
    ids=["told", "as Spark", "told not to"],
)
def test_what_receivers_send_is_encrypted_if_so_told_or_else_if_spark_encrypts(
    sc: SparkContext, setting: Callable[[str, str], None], settings: dict[str, str], encrypted: bool
) -> None:
    for key, value in settings.items():
        setting(key, value)
    stream = Stream(sc)
    store, credentials = store_of_ten_numbers(stream)
    plain = RpcClient(store.host, store.port, RpcCredentials(credentials.token), 10)
    assert is_gone(plain) is encrypted
    assert ticks(stream, lambda: None) == [list(range(10))]


def test_a_context_that_stops_leaves_no_block_store_though_spark_lives_on(stream: Stream) -> None:
    store, credentials = store_of_ten_numbers(stream)
    client = RpcClient(store.host, store.port, credentials)
    assert b"blocks" in client.ask("usage")
    stream.stop(graceful=False)
    wait_for(lambda: is_gone(client))


def is_gone(client: RpcClient) -> bool:
    try:
        client.ask("usage")
    except RpcUnreachableError:
        return True
    return False


def received(stream: ReceiverInputDStream) -> int:
    """Records that wait for a batch."""
    return sum(block.num_records or 0 for block in stream.services.received_blocks.unallocated(stream.id))


def wait_for(reached: Callable[[], Any]) -> None:
    end = real_time.monotonic() + PATIENCE
    while not reached():
        assert real_time.monotonic() < end
        threading.Event().wait(0.005)


# -- queues


def test_a_queue_takes_lists_and_rdds_and_what_is_appended(stream: Stream) -> None:
    """Spark behaviour IS8."""
    queue: list[Any] = [[1, 2], stream.ssc.sparkContext.parallelize([3])]
    stream.ssc.queueStream(queue, default=[9]).foreachRDD(note)
    stream.start()
    assert ticks(stream, lambda: queue.append([4]), lambda: None, lambda: None, lambda: None) == [[1, 2], [3], [4], [9]]
    assert len(queue) == 3 and queue[0] == [1, 2]


# -- stored with the graph


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of every context that is not given one."""
    one = ManualClock(START)
    monkeypatch.setattr("kstream.context.streaming_context.SystemClock", lambda: one)
    return one


def recovered(sc: SparkContext, path: str, build: Callable[[StreamingContext], DStream]) -> StreamingContext:
    def setup() -> StreamingContext:
        CALLED.append("setup")
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        build(ssc).foreachRDD(note)
        return ssc

    return StreamingContext.getOrCreate(path, setup)


def test_file_streams_go_on_from_the_stored_graph_without_setup(
    sc: SparkContext, clock: ManualClock, tmp_path: Path, setting: Callable[[str, str], None]
) -> None:
    """SC14, CP8: and the files that came while no driver ran belong to the missed batches."""
    setting("spark.streaming.kstream.recovery", "graph")
    path, directory = f"memory://{uuid.uuid4().hex}", str(tmp_path)

    def build(ssc: StreamingContext) -> DStream:
        texts = ssc.textFileStream(directory)
        pairs = ssc.binaryRecordsStream(directory, 2).map(lambda pair: pair.decode())
        whole = ssc.fileStream(directory, filter=lambda p: p.endswith("a"), reader=lambda file, _path: [file.read().decode().upper()])
        return ssc.union(texts, pairs, whole)

    first = Stream(sc, clock, recovered(sc, path, build)).start()
    arrives(first, tmp_path / "a", "aa")()
    first.tick()
    first.stop()
    arrives(first, tmp_path / "b", "bb")()
    clock.advance(2 * INTERVAL)
    second = Stream(sc, clock, recovered(sc, path, build)).start()
    second.counter.wait(2)
    arrives(second, tmp_path / "c", "cc")()
    second.tick()
    second.stop()
    assert CALLED == ["setup"]
    assert SEEN == [["aa", "aa", "AA"], ["bb", "bb"], [], ["cc", "cc"]]


def made_again(sc: SparkContext, build: Callable[[StreamingContext], DStream]) -> Any:
    """The input of a graph that was started, stopped and restored."""
    path = f"memory://{uuid.uuid4().hex}"
    recovered(sc, path, build).start()
    active = StreamingContext.getActive()
    assert active is not None
    active.stop(stopSparkContext=False)
    (stream,) = recovered(sc, path, build)._graph.input_streams
    return stream


def test_sockets_and_receivers_are_made_again_from_the_stored_graph_without_setup(
    sc: SparkContext, clock: ManualClock, setting: Callable[[str, str], None]
) -> None:
    setting("spark.streaming.kstream.recovery", "graph")
    sockets = made_again(sc, lambda ssc: ssc.socketTextStream("127.0.0.1", 1))
    counting = made_again(sc, lambda ssc: ssc.receiverStream(Counting(3)))
    assert CALLED == ["setup", "setup"]
    assert isinstance(sockets, ReceiverInputDStream) and isinstance(counting, ReceiverInputDStream)
    assert sockets.receiver.storageLevel == StorageLevel.MEMORY_AND_DISK_2
    assert isinstance(counting.receiver, Counting) and counting.receiver.most == 3


def test_receivers_that_would_leave_no_core_to_the_batches_are_refused_with_both_numbers_and_no_driver_is_fenced(
    stream: Stream, tmp_path: Path
) -> None:
    stream.ssc.checkpoint(str(tmp_path))
    for _ in range(2):
        stream.ssc.receiverStream(Counting(1)).foreachRDD(note)
    with pytest.raises(ConfigurationError, match=r"2 receivers take a core each .* there are 2 cores in all"):
        stream.start()
    assert not list(tmp_path.glob("epoch-*"))


def test_a_receivers_write_ahead_log_needs_a_checkpoint_directory(stream: Stream) -> None:
    stream.ssc._settings.override(WRITE_AHEAD_LOG, "true")
    stream.ssc.receiverStream(Counting(1)).foreachRDD(note)
    with pytest.raises(ConfigurationError, match="Cannot enable receiver write-ahead log without checkpoint directory set"):
        stream.start()
