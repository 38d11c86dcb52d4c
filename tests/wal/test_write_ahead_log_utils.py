"""Which log the settings make, and that each of them changes what it does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstream.conf import ConfSource
from kstream.errors import ConfigurationError, FencedError, StorageError, WriteAheadLogError
from kstream.storage import FileStore, LocalFileStore
from kstream.wal import BatchedWriteAheadLog, FileBasedWriteAheadLog, WriteAheadLog, WriteAheadLogRecordHandle, single_records
from kstream.wal import create_log_for_driver as for_driver
from kstream.wal import create_log_for_receiver as for_receiver
from tests.fakes import FakeConf
from tests.stores import FaultyStore, WrappedStore
from tests.wal.logs import memory

SIDES = ("driver", "receiver")


class NoLog(WriteAheadLog):
    """Keeps what it was made with."""

    made_with: Any = ()

    def write(self, record: bytes, time_ms: int) -> WriteAheadLogRecordHandle:
        return WriteAheadLogRecordHandle()

    def read(self, handle: WriteAheadLogRecordHandle) -> bytes:
        return b""

    def readAll(self) -> Iterator[bytes]:
        return iter(())

    def clean(self, threshold_ms: int, wait: bool) -> None: ...

    def close(self) -> None: ...


class LogWithConf(NoLog):
    def __init__(self, conf: ConfSource) -> None:
        self.made_with = conf


class LogWithTwo(NoLog):
    def __init__(self, conf: ConfSource, folder: str) -> None: ...


class LogThatFails(NoLog):
    def __init__(self) -> None:
        raise ValueError("no such table")


class Unfinished(WriteAheadLog):
    """Lacks every method."""


class NoLogAtAll:
    pass


def key(side: str, name: str) -> str:
    return f"spark.streaming.{side}.writeAheadLog.{name}"


def made(side: str, store: FileStore, **settings: str) -> WriteAheadLog:
    """The log beneath the batching."""
    conf = FakeConf({key(side, name.rstrip("_")): value for name, value in settings.items()})
    log = for_driver(conf, store) if side == "driver" else for_receiver(conf, store, 3)
    return log.wrapped if isinstance(log, BatchedWriteAheadLog) else log


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file())


def test_by_default_the_drivers_log_is_in_files_and_batched_and_a_receivers_is_not_batched(tmp_path: Path) -> None:
    """Spark behaviour WL8."""
    driver, receiver = for_driver(FakeConf(), LocalFileStore(tmp_path)), for_receiver(FakeConf(), LocalFileStore(tmp_path), 0)
    assert type(driver) is BatchedWriteAheadLog and type(driver.wrapped) is FileBasedWriteAheadLog
    assert type(receiver) is FileBasedWriteAheadLog


def test_batching_is_switched_off_on_the_drivers_side_only() -> None:
    """WL8: allowBatching."""
    off = FakeConf({key("driver", "allowBatching"): "false"})
    assert type(for_driver(off, memory())) is FileBasedWriteAheadLog
    assert type(for_receiver(FakeConf({key("receiver", "allowBatching"): "true"}), memory(), 0)) is FileBasedWriteAheadLog


@pytest.mark.parametrize("side", SIDES)
def test_a_log_lies_where_spark_has_it_and_rolls_after_a_minute(tmp_path: Path, side: str) -> None:
    """Spark behaviour WL10."""
    log = made(side, LocalFileStore(tmp_path))
    for time_ms in (0, 60_000, 60_001):
        log.write(b"x", time_ms)
    folder = {"driver": "receivedBlockMetadata", "receiver": "receivedData/3"}[side]
    assert files(tmp_path) == [f"{folder}/log-0-60000", f"{folder}/log-60001-120001"]


@pytest.mark.parametrize("side", SIDES)
def test_files_are_not_closed_after_a_write_unless_asked_for(tmp_path: Path, side: str) -> None:
    """WL8, WL10: closeFileAfterWrite."""
    for settings, count in (({}, 1), ({"closeFileAfterWrite": "true"}, 3)):
        store = LocalFileStore(tmp_path / str(count))
        log = made(side, store, **settings)
        for time_ms in (0, 100, 200):
            log.write(b"x", time_ms)
        assert len(files(tmp_path / str(count))) == count


@pytest.mark.parametrize("side", SIDES)
def test_the_rolling_interval_is_a_setting_of_each_side(tmp_path: Path, side: str) -> None:
    """WL10: rollingIntervalSecs."""
    made(side, LocalFileStore(tmp_path), rollingIntervalSecs="7").write(b"x", 5)
    assert files(tmp_path)[0].endswith("log-5-7005")


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("settings", "tries"), [({}, 3), ({"maxFailures": "5"}, 5), ({"maxFailures": "1"}, 1)])
def test_the_number_of_tries_is_a_setting_of_each_side(side: str, settings: dict[str, str], tries: int) -> None:
    """WL10: maxFailures."""
    store, tried = FaultyStore(memory()), list[str]()

    def fault(verb: str, name: str) -> str | None:
        tried.append(name)
        return "before"

    store.fault = fault
    with pytest.raises(StorageError):
        made(side, store, closeFileAfterWrite="true", **settings).write(b"x", 0)
    assert len(tried) == tries


class StandingStore(WrappedStore):
    """A write stands until `go`."""

    def __init__(self) -> None:
        super().__init__(memory())
        self.go = threading.Event()

    def create(self, name: str, data: bytes, *, private: bool = False) -> None:
        assert self.go.wait(60)
        super().create(name, data, private=private)


def test_the_batching_timeout_is_a_setting() -> None:
    """WL10: batchingTimeout."""
    store = StandingStore()
    conf = FakeConf({key("driver", "batchingTimeout"): "1", key("driver", "closeFileAfterWrite"): "true"})
    log = for_driver(conf, store)
    with pytest.raises(WriteAheadLogError, match=r"not written within 0\.001 s"):
        log.write(b"x", 0)
    store.go.set()
    log.close()


@pytest.mark.parametrize("side", SIDES)
def test_a_class_of_the_users_own_is_made_with_the_configuration_or_with_nothing(side: str) -> None:
    """WL8: class."""
    assert type(made(side, memory(), class_=f"{__name__}.NoLog")) is NoLog
    log = made(side, memory(), class_=f"{__name__}.LogWithConf")
    assert isinstance(log, LogWithConf) and log.made_with.get(key(side, "class")) == f"{__name__}.LogWithConf"


def test_a_class_of_the_users_own_is_batched_on_the_driver_and_the_other_sides_class_is_not_taken() -> None:
    """Spark behaviour WL8."""
    conf = FakeConf({key("driver", "class"): f"{__name__}.NoLog"})
    driver = for_driver(conf, memory())
    assert isinstance(driver, BatchedWriteAheadLog) and type(driver.wrapped) is NoLog
    assert type(for_receiver(conf, memory(), 0)) is FileBasedWriteAheadLog
    driver.close()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"{__name__}.LogWithTwo", "takes neither"),
        (f"{__name__}.NoLogAtAll", "no subclass"),
        (f"{__name__}.key", "no subclass"),
        (f"{__name__}.Unfinished", "making it failed, TypeError"),
        (f"{__name__}.LogThatFails", "no such table"),
        (f"{__name__}.Missing", "cannot be imported"),
        ("no.such.module.Log", "cannot be imported"),
        ("Log", "cannot be imported"),
    ],
)
def test_a_class_that_cannot_be_a_log_is_refused_with_its_key_and_the_reason(side: str, name: str, reason: str) -> None:
    """Spark behaviour WL8."""
    with pytest.raises(ConfigurationError, match=reason) as caught:
        made(side, memory(), class_=name)
    assert (caught.value.facts["key"], caught.value.facts["value"]) == (key(side, "class"), name)


def test_a_driver_that_was_replaced_is_told_so_after_its_write_and_the_write_does_not_count() -> None:
    """Its successor may have read the log before; so the block is not acknowledged."""
    store, replaced = memory(), False

    def probe() -> None:
        if replaced:
            raise FencedError("epoch 2 has begun", path="", epoch=1, newer_epoch=2)

    log = for_driver(FakeConf(), store, probe=probe)
    log.write(b"counts", 1)
    replaced = True
    with pytest.raises(WriteAheadLogError, match="epoch 2 has begun"):
        log.write(b"does not", 2)
    log.close()


def test_batches_are_read_also_when_batching_has_been_switched_off() -> None:
    store = memory()
    log = for_driver(FakeConf(), store)
    log.write(b"one", 1)
    log.close()
    off = for_driver(FakeConf({"spark.streaming.driver.writeAheadLog.allowBatching": "false"}), store)
    off.write(b"two", 2)
    assert list(single_records(off.readAll())) == [b"one", b"two"]
