"""The settings of checkpoints."""

from __future__ import annotations

from kstream.conf import MILLISECONDS, STR, ConfigEntry

CHECKPOINT_DIRECTORY: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.checkpoint.directory",
    STR,
    None,
    "Checkpoint directory of a new context.",
)
HISTORY: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.history",
    MILLISECONDS,
    86_400_000,
    "How long plans that no restart needs are kept for replays; 0 keeps none.",
)
