"""What a program of twins is given on either side, and how it writes down what it saw."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.resultiterable import ResultIterable

from integration.twins.clocks import HandClock, clock_of

START_MS = 1_700_000_000_000
"""The zero time of every program's streams."""


def plain(value: Any) -> Any:
    """A record as what compares and prints alike everywhere: iterables without an order of their own are sorted."""
    if isinstance(value, ResultIterable):
        return ["*", *sorted((plain(v) for v in value), key=repr)]
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    return [plain(v) for v in value] if isinstance(value, list) else value


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


class Recorder:
    """Writes a line for each thing seen. Pickled as its path, so that a function restored from a checkpoint writes to the same file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, name: str, value: Any, time: datetime | None = None) -> None:
        entry = {"name": name, "value": value} | ({} if time is None else {"time": milliseconds(time)})
        line = (json.dumps(entry) + "\n").encode()
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def keep(self, name: str, stream: Any, order: str = "within") -> None:
        """Makes an output of the stream that writes down its batches, partition by partition.

        `order`: "exact" – the records as they come; "within" – those of a partition in any order; "any" – not even by partition, but how
        many partitions there are.
        """
        write, shape = self.write, _SHAPES[order]

        def note(time: datetime, rdd: Any) -> None:
            write(name, shape([[repr(plain(record)) for record in part] for part in rdd.glom().collect()]), time)

        stream.foreachRDD(note)


_SHAPES: dict[str, Callable[[list[list[str]]], Any]] = {
    "exact": lambda parts: parts,
    "within": lambda parts: [sorted(part) for part in parts],
    "any": lambda parts: [len(parts), sorted(record for part in parts for record in part)],
}


class Run:
    """What a program is given. Its batches last a second each, and the clock stands at START_MS until `tick`."""

    def __init__(self, side: str, directory: Path) -> None:
        self.side = side
        self.directory = directory
        self.recorder = Recorder(str(directory / "seen.jsonl"))
        self._clocks: dict[int, tuple[Any, HandClock]] = {}

    @property
    def life(self) -> int:
        """1 in the first process of the program, 2 in the next."""
        return int(sys.argv[2])

    def conf(self) -> SparkConf:
        """One core (the other is the twin's), the test's number of partitions where none is asked for, and clocks that are moved by hand.

        At a restart they are set to two batches after the last one. The program that is restarted stores its graph, as pyspark does.
        """
        recovery = "graph" if self.directory.name == "restart" else "setup"
        settings = {
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1", "spark.python.unix.domain.socket.enabled": "true",
            "spark.default.parallelism": sys.argv[3], "spark.streaming.clock": "org.apache.spark.util.ManualClock",
            "spark.streaming.manualClock.jump": "2000", "spark.streaming.kstream.recovery": recovery,
        }  # fmt: skip
        return SparkConf().setMaster("local[1]").setAppName("twins").setAll(list(settings.items()))

    @property
    def sc(self) -> SparkContext:
        context = SparkContext.getOrCreate(self.conf())
        context.setLogLevel("ERROR")
        return context

    def at_start(self, ssc: Any) -> Any:
        """Sets the context's clock to START_MS; to be called before its streams are made. Returns the context."""
        self._clock(ssc).set(START_MS)
        return ssc

    def start(self, ssc: Any) -> None:
        """Starts the context, ready for `tick`."""
        self._clock(ssc).follow()
        ssc.start()

    def tick(self, ssc: Any, batches: int = 1, wait: bool = True) -> None:
        """Goes on by so many batch intervals, one after the other, and waits for each of the batches to end."""
        for _ in range(batches):
            self._clock(ssc).tick(wait)

    def _clock(self, ssc: Any) -> HandClock:
        """The clock of a context. The context is kept with it: another one could else get its id, and with that a clock that has moved."""
        return self._clocks.setdefault(id(ssc), (ssc, clock_of(self.side, ssc)))[1]

    def keep_files(self, name: str, globs: Sequence[str]) -> None:
        """Writes down the files of the run's directory that match: path → text. Those that begin with a dot (checksums) do not count."""
        files = (file for glob in globs for path in self.directory.glob(glob) for file in path.rglob("*"))
        texts = {str(f.relative_to(self.directory)): f.read_text() for f in files if f.is_file() and not f.name.startswith(".")}
        self.recorder.write(name, texts)

    def arrive(self, path: Path, text: str, seconds: float) -> None:
        """Moves a whole file to where it is watched for, as modified so many seconds after START_MS."""
        path.parent.mkdir(parents=True, exist_ok=True)
        written = self.directory / f".{path.name}"
        written.write_text(text)
        os.utime(written, (0, START_MS / 1000 + seconds))
        written.rename(path)

    def attempt(self, name: str, call: Callable[[], Any], says: str = "") -> None:
        """Writes down what the call returned, or which error it raised. `says`: words that belong in the error of both sides."""
        try:
            value = call()
        except Exception as e:
            classes = [c.__name__ for c in type(e).__mro__]
            self.recorder.write(name, {"error": classes, "message": str(e), "says": says})
        else:
            self.recorder.write(name, {"returned": repr(value), "says": says})


def load(path: Path) -> Callable[[Run], None]:
    """The `program` of a file. It is not imported: its functions are pickled by value, as those of a script are."""
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["program"]
