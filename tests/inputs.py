"""Inputs on the engine of `tests.harness`, without a JVM: files with times set by hand, and what a driver's input does with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec

from kstream.dstream import FileInputDStream
from kstream.files import FileFormat, TextLines, WatchedDirectory
from tests.fakes import FakeHost, FakeRDD
from tests.harness import INTERVAL, Build, Driver, World


def fake_rdd(count: int, make: Callable[[int], Iterable[Any]]) -> FakeRDD:
    """In place of WorkerRDD; `ranges` says how many partitions there would be."""
    return FakeRDD([record for index in range(count) for record in make(index)], (0, count))


class CountingDirectory(WatchedDirectory):
    """Counts listings; `failing` is raised instead of one."""

    def __init__(self, directory: str, split_bytes: int = 1 << 20) -> None:
        super().__init__(directory, split_bytes, fake_rdd)
        self.listings = 0
        self.failing: Exception | None = None

    def list(self, newer_than_ms: int) -> Any:
        self.listings += 1
        if self.failing is not None:
            raise self.failing
        return super().list(newer_than_ms)


def write(path: Path | str, text: str, mtime_ms: int) -> None:
    """A file that appears whole, modified at that time. `path` may lie on memory://."""
    if str(path).startswith("memory:"):
        memory = fsspec.filesystem("memory")
        memory.pipe_file(str(path), text.encode())
        stamp_memory(str(path), mtime_ms)
        return
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    os.utime(temporary, ns=(0, mtime_ms * 1_000_000))
    temporary.rename(path)


def stamp_memory(url: str, mtime_ms: int) -> None:
    """Sets the modification time of a file on memory://."""
    memory = fsspec.filesystem("memory")
    memory.store[memory._strip_protocol(url)].modified = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=mtime_ms)


def file_stream(
    host: FakeHost, directory: str, clock: Any, *, format: FileFormat | None = None, filter: Any = None, newFilesOnly: bool = True
) -> FileInputDStream:
    return FileInputDStream(host, CountingDirectory(directory), format or TextLines(), clock, filter, newFilesOnly)


class FileDriver(Driver):
    """A driver whose only output is a file stream; `over` makes another stream of it."""

    def __init__(
        self, world: World, directory: Path | str, conf: dict[str, str] | None = None,
        over: Callable[[FileInputDStream], Any] = lambda stream: stream, **options: Any,
    ) -> None:  # fmt: skip
        def build(host: FakeHost, driver: Any) -> None:
            self.files = file_stream(host, str(directory), driver.clock, **options)
            driver.output(over(self.files))

        made: Build = build
        super().__init__(world, conf, build=made)

    @property
    def source(self) -> Any:
        return self.files._source

    def plans(self) -> dict[int, list[str]]:
        """Batch time → names of its files, of what this driver knows."""
        return {t.milliseconds: [file.name for file in plan.files] for t, plan in sorted(self.files._plans.items())}


def batches(world: World) -> dict[int, list[Any]]:
    """Batch time → its records; every attempt at a batch must have had the same."""
    return {time: list(records) for time, records in sorted(world.records_by_time().items())}


def arrives(world: World, directory: str, name: str, text: str | None = None, ago: int = 0) -> None:
    """A file that is modified half a batch from now, so that the next batch takes it; or so long ago."""
    mtime = world.clock.time_ms() + INTERVAL // 2 if not ago else world.clock.time_ms() - ago
    write(f"{directory}/{name}", text or f"{name}\n", mtime)


def last(world: World) -> list[Any]:
    return list(world.attempts[-1].records)
