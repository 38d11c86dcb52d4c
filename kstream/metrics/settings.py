"""The settings of metrics. This file does not import prometheus_client, because a driver without metrics reads them, too."""

from __future__ import annotations

from kstream.conf import INT, STR, ConfigEntry

METRICS_PORT: ConfigEntry[int | None] = ConfigEntry(
    "spark.streaming.kstream.metrics.port",
    INT,
    None,
    "Port of the driver for Prometheus; 0 is any. Without it there are no metrics.",
)
METRICS_HOST: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.metrics.host",
    STR,
    "127.0.0.1",
    "Address for the port of the metrics: that of this machine only.",
)
METRICS_MAX_PARTITIONS: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.metrics.maxPartitions",
    INT,
    1000,
    "Up to so many partitions of all inputs have metrics of their own; more are counted by topic.",
    least=0,
)
