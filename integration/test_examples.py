"""The examples of `kstream.examples`, each run by spark-submit as a user runs it, on real input; two of them killed and started again."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstream.examples
from integration.kafka_broker import KafkaBroker
from integration.submitted import PATIENCE_S, Submitted

pytestmark = pytest.mark.timeout(5 * PATIENCE_S)
FOLDER = Path(*kstream.examples.__path__)
BLOCK = re.compile(r"^-{43}\nTime: (.+)\n-{43}\n((?:.+\n)*)\n", re.MULTILINE)
IDLE_S = 6
AHEAD_S = 4

Block = tuple[str, tuple[str, ...]]


def blocks(run: Submitted) -> list[Block]:
    """What pprint has printed, in whole blocks: (batch time, records)."""
    return [(at, tuple(lines.splitlines())) for at, lines in BLOCK.findall(run.said())]


def seconds(at: str) -> float:
    """Since 1970, of a batch time as it is printed."""
    return time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S"))


def counted(run: Submitted) -> Counter[str]:
    """Word → how often, over all batches; of a batch that was printed twice, once – and both must be the same."""
    batches: dict[str, Counter[str]] = {}
    for at, lines in blocks(run):
        counts = Counter(dict(ast.literal_eval(line) for line in lines))
        assert batches.setdefault(at, counts) == counts, f"two contents for the batch of {at}"
    return sum(batches.values(), Counter())


def words_of(*lines: str) -> Counter[str]:
    return Counter(word for line in lines for word in line.split(" "))


def end_cleanly(run: Submitted) -> None:
    last_words = run.terminate()
    assert "Error" not in last_words and "Traceback" not in last_words, last_words


class LineServer:
    """What `nc -lk` is in the examples' docstrings: sends lines to who has connected."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self._connection: socket.socket | None = None

    def accept(self) -> None:
        self._connection = self._listener.accept()[0]

    def send(self, *lines: str) -> None:
        assert self._connection is not None
        self._connection.sendall("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._listener.close()


@pytest.fixture
def server() -> Iterator[LineServer]:
    made = LineServer()
    yield made
    made.close()


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    directory = tmp_path / "incoming"
    directory.mkdir()
    return directory


def move_in(directory: Path, name: str, *lines: str, modified: float | None = None) -> None:
    """As a file stream wants it: whole, by a rename."""
    (directory / f".{name}").write_text("".join(f"{line}\n" for line in lines))
    if modified is not None:
        os.utime(directory / f".{name}", (modified, modified))
    (directory / f".{name}").rename(directory / name)


def test_network_wordcount_counts_what_a_server_sends(server: LineServer, tmp_path: Path) -> None:
    lines = ["to be or not to be", "that is the question"]
    with Submitted(tmp_path, FOLDER / "network_wordcount.py", "127.0.0.1", server.port) as run:
        server.accept()
        server.send(lines[0])
        run.wait_for("the first line", lambda: counted(run) == words_of(lines[0]))
        (first,) = (records for _, records in blocks(run) if records)
        assert sorted(first) == ["('be', 2)", "('not', 1)", "('or', 1)", "('to', 2)"]
        server.send(lines[1])
        run.wait_for("both lines", lambda: counted(run) == words_of(*lines))
        end_cleanly(run)


def test_hdfs_wordcount_counts_the_files_that_are_moved_in(incoming: Path, tmp_path: Path) -> None:
    move_in(incoming, "before.txt", "not counted")
    with Submitted(tmp_path, FOLDER / "hdfs_wordcount.py", incoming) as run:
        run.wait_for("the first batch", lambda: blocks(run))
        move_in(incoming, "a.txt", "to be or", "not to be")
        run.wait_for("the first file", lambda: counted(run) == words_of("to be or not to be"))
        move_in(incoming, "b.txt", "to be")
        run.wait_for("both files", lambda: counted(run) == words_of("to be or not to be to be"))
        end_cleanly(run)


def test_direct_kafka_wordcount_goes_on_exactly_when_its_driver_was_killed(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, sent = topic(2), list[str]()

    def produce(count: int) -> None:
        values = [f"word-{(len(sent) + i) % 7} all" for i in range(count)]
        kafka.produce(name, [("key", value, i % 2) for i, value in enumerate(values)])
        sent.extend(values)

    example = (tmp_path, FOLDER / "direct_kafka_wordcount.py", kafka.bootstrap, name, tmp_path / "checkpoint")
    with Submitted(*example) as run:
        run.wait_for("the first batch", lambda: blocks(run))
        produce(40)
        run.wait_for("the first words", lambda: counted(run))
        produce(40)
        os.kill(run.driver(), signal.SIGKILL)
        assert run.process.wait(PATIENCE_S) != 0
    produce(40)
    with Submitted(*example) as run:
        run.wait_for("all words", lambda: counted(run) == words_of(*sent))
        produce(3)
        run.wait_for("new words", lambda: counted(run) == words_of(*sent))
        end_cleanly(run)
    times = sorted({seconds(at) for at, _ in blocks(run)})
    assert times == [times[0] + second for second in range(len(times))], "a batch was left out"


def times_of(run: Submitted, line: str) -> list[float]:
    """The batches that have printed this line, in seconds since 1970; the first is the oldest."""
    return sorted({seconds(at) for at, records in blocks(run) if line in records})


def test_stateful_sessions_of_files_go_on_exactly_when_spark_was_killed(incoming: Path, tmp_path: Path) -> None:
    """A file is of the batch of its modification time. What ann does later is dated ahead, so that a slow machine tells the same story."""
    run: Submitted

    def printed(line: str) -> Callable[[], bool]:
        return lambda: bool(times_of(run, line))

    example = (tmp_path, FOLDER / "stateful_sessions.py", incoming, tmp_path / "checkpoint", "--idle", IDLE_S)
    with Submitted(*example) as run:
        run.wait_for("the first batch", lambda: blocks(run))
        move_in(incoming, "a.txt", "ann login", "bob login", "bob buy a hat")
        move_in(incoming, "b.txt", "ann search", modified=time.time() + AHEAD_S)
        run.wait_for("open sessions", printed("ann is here: login"))
        assert printed("bob is here: login, buy a hat")()
        run.kill()
    with Submitted(*example) as run:
        run.wait_for("the end of bob's session", printed("bob has left after: login, buy a hat"))
        run.wait_for("the end of ann's session", printed("ann has left after: login, search"))
        move_in(incoming, "c.txt", "ann login again")
        run.wait_for("another session", printed("ann is here: login again"))
        end_cleanly(run)
    ended = {(at, line) for at, lines in blocks(run) for line in lines if " has left " in line}
    assert sorted(line for _, line in ended) == ["ann has left after: login, search", "bob has left after: login, buy a hat"]


def test_stateful_sessions_of_a_socket_go_on_with_the_state_of_the_last_batch_that_ended(server: LineServer, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    example = (tmp_path, FOLDER / "stateful_sessions.py", f"127.0.0.1:{server.port}", checkpoint, "--idle", 10 * PATIENCE_S)
    with Submitted(*example) as run:
        server.accept()
        server.send("ann login", "", "bob")
        run.wait_for("open sessions", lambda: times_of(run, "ann is here: login"))
        (first, *_) = times_of(run, "ann is here: login")
        run.wait_for("the end of that batch", lambda: list((checkpoint / "done").glob(f"*{first:.0f}000-*")))
        run.kill()
    with Submitted(*example) as run:
        server.accept()
        server.send("ann search")
        run.wait_for("her session", lambda: times_of(run, "ann is here: login, search"))
        end_cleanly(run)


def test_structured_network_wordcount_runs_beside_them(server: LineServer, tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "2"}
    with Submitted(tmp_path, FOLDER / "structured_network_wordcount.py", "127.0.0.1", server.port, **conf) as run:
        server.accept()
        server.send("to be or not to be")
        run.wait_for("the words", lambda: re.search(r"\| *be\| *2\|", run.said()))
        run.terminate()
