"""HadoopPlace: where a store of Hadoop's lies, as a task is told it, and how a worker opens it by a JVM of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kstream.secret import looks_secret
from kstream.storage import FileStore
from kstream.worker.process import once

_REDACTED = "<redacted>"
_DEFAULTS = "-default.xml"


@dataclass(frozen=True, slots=True)
class HadoopPlace:
    """Pickled into tasks. `settings`: of the driver's Hadoop configuration what is not its default and no secret."""

    url: str
    settings: tuple[tuple[str, str], ...]
    look_first: bool = False
    """The file system does not refuse a rename by itself: for a single writer."""

    def open(self) -> FileStore:
        """The store, opened once a process; the first time that starts a JVM, which takes seconds. Asks no server. StorageError."""
        return once(self, self._opened)

    def _opened(self) -> FileStore:
        from kstream.spark.hdfs_appending import open_hadoop

        return open_hadoop(self.url, dict(self.settings), look_first=self.look_first)


def settings_for_workers(jvm: Any, configuration: Any) -> tuple[tuple[str, str], ...]:
    """What differs from Hadoop's defaults, whoever has set it. Left out is what Hadoop calls sensitive, or looks so."""
    writer = jvm.java.io.StringWriter()
    jvm.org.apache.hadoop.conf.Configuration.dumpConfiguration(configuration, writer)
    return chosen(json.loads(str(writer.toString())))


def chosen(dumped: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Of a configuration as Hadoop dumps it."""
    return tuple(
        sorted(
            (setting["key"], setting["value"])
            for setting in dumped["properties"]
            if not setting["resource"].endswith(_DEFAULTS)
            and setting["value"] not in (None, _REDACTED)
            and not looks_secret(setting["key"], setting["value"])
        )
    )
