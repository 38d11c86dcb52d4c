"""What of kstream runs on managed platforms: one table, for the page and for the exception where the platform can be recognised.

`python -m kstream.spark.platforms` prints it for docs/deployment.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from kstream.errors import ConfigurationError

RUNS_NOT, UNTESTED = "does not run", "untested"
NO_RDDS = (
    "a session of Spark Connect has no SparkContext and no RDDs, which streams need. Use `format('kstream')` of Structured Streaming: only "
    "the server and its executors need kstream"
)
_CONNECT = "pyspark.sql.connect."
_NEEDS = "has a SparkContext: give it, `StreamingContext(sc, 1)`"


@dataclass(frozen=True, slots=True)
class Platform:
    """A place where others run Spark. Attributes: streams (RUNS_NOT or UNTESTED), why (a sentence without its full stop)."""

    name: str
    streams: str
    why: str


PLATFORMS = (
    Platform("any client of a Spark Connect server", RUNS_NOT, NO_RDDS),
    Platform("Databricks serverless; Databricks clusters in standard access mode", RUNS_NOT, NO_RDDS),
    Platform("Databricks clusters in dedicated access mode", UNTESTED, f"{_NEEDS}. Install kstream as a library of the cluster"),
    Platform("Amazon EMR clusters", UNTESTED, "is YARN: spark-submit in client mode, or `kstream run --master yarn` on the primary node"),
    Platform("Amazon EMR on EKS", UNTESTED, "is spark-submit in cluster mode on Kubernetes: see [kubernetes.md](kubernetes.md)"),
    Platform(
        "Amazon EMR Serverless",
        UNTESTED,
        "is spark-submit in cluster mode. Whether the service starts a failed job again is a setting of the job",
    ),
    Platform("AWS Glue", UNTESTED, f"{_NEEDS}. Spark 3.5 needs Glue 5"),
    Platform("Google Dataproc clusters", UNTESTED, "is YARN: as on EMR"),
    Platform(
        "Google Dataproc Serverless, batches",
        UNTESTED,
        "is spark-submit in cluster mode. A batch has a longest life, which the service sets",
    ),
    Platform("Google Dataproc Serverless, sessions of Spark Connect", RUNS_NOT, NO_RDDS),
    Platform(
        "Azure Synapse, Microsoft Fabric: Spark job definitions",
        UNTESTED,
        f"{_NEEDS}. The service says whether it starts a failed job again",
    ),
    Platform("Azure HDInsight", RUNS_NOT, "kstream needs Spark 3.5, and HDInsight 5.1 has Spark 3.3"),
)


def check_platform(given: object, environ: Mapping[str, str] = os.environ) -> None:
    """Refuse a session of Spark Connect, before Spark would refuse it in words of its own.

    Args:
        given: what a StreamingContext is to be made of.
        environ: the environment variables of this process, where pyspark notes that it is a client.

    Raises:
        ConfigurationError: it is such a session, or this process is its client.
    """
    is_client = "SPARK_CONNECT_MODE_ENABLED" in environ and "SPARK_LOCAL_REMOTE" not in environ
    if is_client or type(given).__module__.startswith(_CONNECT):
        raise ConfigurationError(NO_RDDS, key="sparkContext", value=type(given).__name__)


def markdown() -> str:
    """Return the table of docs/deployment.md."""
    rows = [f"| {each.name} | {each.streams} | {each.why} |" for each in PLATFORMS]
    return "\n".join(["| platform | streams of kstream | why, or what to do |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(markdown())
