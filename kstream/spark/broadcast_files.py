"""The files of pyspark's broadcast variables, removed once Spark has let go of the variables.

pyspark sends a function of more than a megabyte to its workers as a broadcast variable, whose value it writes into a local file of the
driver. Spark removes the variable when no RDD has it any more. The file stays until the SparkContext stops. A stream makes RDDs for each
batch, so the disk of its driver would fill up.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext


def remove_unused_broadcast_files(sc: SparkContext) -> None:
    """Let each new broadcast variable remove the files of those that the JVM has collected, once for each SparkContext.

    The broadcast variables that exist already keep their files.
    """
    if "broadcast" not in sc.__dict__:
        sc.__dict__["broadcast"] = _BroadcastFiles(sc).broadcast


class _BroadcastFiles:
    """Makes broadcast variables, and knows the file of each by the JVM's object for it. Any thread.

    Nobody but this object of the JVM and pyspark's `Broadcast`, which refers to it, reads the file: executors get the value from Spark. So
    the file may go when the object is collected.
    """

    def __init__(self, sc: SparkContext) -> None:
        self._broadcast = sc.broadcast
        java: Any = sc._jvm.java  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
        self._new_reference = java.lang.ref.WeakReference
        self._collected = java.lang.ref.ReferenceQueue()
        self._paths = java.util.concurrent.ConcurrentHashMap()
        """Reference to the JVM's object → path of its file."""

    def broadcast(self, value: Any) -> Broadcast[Any]:
        """Make a broadcast variable, as `SparkContext.broadcast` does. Remove the files of those that were collected since the last one."""
        made: Any = self._broadcast(value)
        self._paths.put(self._new_reference(made._python_broadcast, self._collected), made._path)
        while (reference := self._collected.poll()) is not None:
            with suppress(OSError):  # the user may have destroyed the variable, and with it the file
                os.unlink(self._paths.remove(reference))
        return made
