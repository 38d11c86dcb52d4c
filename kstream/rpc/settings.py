"""The setting of messages between driver and executors."""

from __future__ import annotations

from kstream.conf import BOOL, ConfigEntry

RPC_ENCRYPT: ConfigEntry[bool | None] = ConfigEntry(
    "spark.streaming.kstream.rpc.encrypt",
    BOOL,
    None,
    "Encrypt the traffic of receivers and executors with each other and the driver; default: `spark.network.crypto.enabled`.",
)
