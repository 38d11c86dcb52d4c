"""The SparkSession of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark import SparkContext


def active_session(sc: SparkContext) -> SparkSession:
    """Return the SparkSession that is active in this thread; if none is, the default session becomes it.

    Spark SQL finds a data source written in Python by the active session of its thread. pyspark makes a session active only in the thread
    that made the first one. In each other thread, as that of a job, `frame.write.format("kstream")` knew no such source.
    """
    if (session := SparkSession.getActiveSession()) is not None:
        return session
    session = SparkSession(sc)
    jvm = sc._jvm  # pyright: ignore[reportPrivateUsage]
    assert jvm is not None
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)  # pyright: ignore
    return session
