"""The write-ahead log that the settings ask for, for the driver and for receivers (Spark's WriteAheadLogUtils)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from kstream.conf import ConfigEntry, ConfSource, Settings
from kstream.errors import ConfigurationError
from kstream.storage import FileStore
from kstream.wal.batched_write_ahead_log import BatchedWriteAheadLog, FencedWriteAheadLog
from kstream.wal.file_based_write_ahead_log import FileBasedWriteAheadLog
from kstream.wal.settings import (
    DRIVER_LOG_ALLOW_BATCHING,
    DRIVER_LOG_BATCHING_TIMEOUT,
    DRIVER_LOG_CLASS,
    DRIVER_LOG_CLOSE_FILE,
    DRIVER_LOG_MAX_FAILURES,
    DRIVER_LOG_ROLLING_INTERVAL,
    RECEIVER_LOG_CLASS,
    RECEIVER_LOG_CLOSE_FILE,
    RECEIVER_LOG_MAX_FAILURES,
    RECEIVER_LOG_ROLLING_INTERVAL,
)
from kstream.wal.write_ahead_log import WriteAheadLog


class _Side(NamedTuple):
    """The settings that the logs of the driver and of receivers have alike."""

    class_name: ConfigEntry[str | None]
    rolling_interval_secs: ConfigEntry[int]
    max_failures: ConfigEntry[int]
    close_file_after_write: ConfigEntry[bool]


_DRIVER = _Side(DRIVER_LOG_CLASS, DRIVER_LOG_ROLLING_INTERVAL, DRIVER_LOG_MAX_FAILURES, DRIVER_LOG_CLOSE_FILE)
_RECEIVER = _Side(RECEIVER_LOG_CLASS, RECEIVER_LOG_ROLLING_INTERVAL, RECEIVER_LOG_MAX_FAILURES, RECEIVER_LOG_CLOSE_FILE)

DRIVER_LOG_FOLDER = "receivedBlockMetadata"
"""The folder of the driver's log in the store of the checkpoint."""


def receiver_log_folder(stream_id: int) -> str:
    """Return the folder of a receiver's log in the store of the checkpoint."""
    return f"receivedData/{stream_id}"


def create_log_for_driver(
    conf: ConfSource,
    store: FileStore,
    probe: Callable[[], None] | None = None,
) -> WriteAheadLog:
    """Make the driver's log. It writes in batches unless the settings say otherwise, also if the log is of the user's class.

    Args:
        conf: the settings.
        store: the store of the checkpoint.
        probe: called after each write of the log below; an error of it makes the write fail. None is no fencing. See
            FencedWriteAheadLog.

    Raises:
        ConfigurationError: a setting has a value that cannot work.
    """
    settings = Settings(conf)
    log = _log(conf, settings, _DRIVER, store, DRIVER_LOG_FOLDER)
    if probe is not None:
        log = FencedWriteAheadLog(log, probe)
    if not settings[DRIVER_LOG_ALLOW_BATCHING]:
        return log
    return BatchedWriteAheadLog(log, settings[DRIVER_LOG_BATCHING_TIMEOUT])


def create_log_for_receiver(conf: ConfSource, store: FileStore, stream_id: int) -> WriteAheadLog:
    """Make a receiver's log. It never writes in batches, because blocks are large and are read by their handles.

    Raises:
        ConfigurationError: a setting has a value that cannot work.
    """
    return _log(conf, Settings(conf), _RECEIVER, store, receiver_log_folder(stream_id))


def _log(conf: ConfSource, settings: Settings, side: _Side, store: FileStore, folder: str) -> WriteAheadLog:
    """Make the log of one side: of the user's class if a setting names one, else in files. ConfigurationError."""
    name = settings[side.class_name]
    if name:
        return _made_by_class(side.class_name.key, name, conf)
    return FileBasedWriteAheadLog(
        store,
        folder,
        rolling_interval_secs=settings[side.rolling_interval_secs],
        max_failures=settings[side.max_failures],
        close_file_after_write=settings[side.close_file_after_write],
    )


def _made_by_class(key: str, name: str, conf: ConfSource) -> WriteAheadLog:
    """Make a log of the user's class. ConfigurationError if that is impossible.

    The class is called with the configuration (an object with `get(key)`), or without an argument if it takes none.
    """
    module, _, made = name.rpartition(".")
    try:
        cls: Any = getattr(importlib.import_module(module), made)
    except (ImportError, AttributeError, ValueError) as e:
        raise _unusable(key, name, f"it cannot be imported, {type(e).__name__}: {e}") from e
    if not (isinstance(cls, type) and issubclass(cls, WriteAheadLog)):
        raise _unusable(key, name, "it is no subclass of kstream.wal.WriteAheadLog")
    arguments = _arguments(cls, conf)
    if arguments is None:
        raise _unusable(key, name, "its constructor takes neither the configuration alone nor no argument")
    try:
        return cls(*arguments)
    except Exception as e:
        raise _unusable(key, name, f"making it failed, {type(e).__name__}: {e}") from e


def _arguments(cls: type, conf: ConfSource) -> list[ConfSource] | None:
    """Return the arguments that the class accepts: the configuration, or none. Return None if the class accepts neither."""
    signature = inspect.signature(cls)
    for arguments in ([conf], []):
        try:
            signature.bind(*arguments)
            return arguments
        except TypeError:
            continue
    return None


def _unusable(key: str, name: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"{key} is {name!r}, of which no write-ahead log can be made: {reason}. Give the dotted name of a subclass of "
        "kstream.wal.WriteAheadLog whose constructor takes the configuration, or nothing",
        key=key,
        value=name,
    )
