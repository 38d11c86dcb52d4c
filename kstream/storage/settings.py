"""The setting of stores."""

from __future__ import annotations

from kstream.conf import BOOL, ConfigEntry

SINGLE_WRITER: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.kstream.checkpoint.singleWriter",
    BOOL,
    False,
    "Declares that there is never a second driver. Then a checkpoint may be on a store that cannot create a file only if it is absent.",
)
