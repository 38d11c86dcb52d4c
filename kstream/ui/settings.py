"""The settings of the page."""

from __future__ import annotations

from kstream.conf import BOOL, INT, STR, ConfigEntry

UI_ENABLED: ConfigEntry[bool] = ConfigEntry(
    "spark.streaming.kstream.ui.enabled",
    BOOL,
    False,
    "Show the batches of this driver on a page, and as JSON.",
)
UI_PORT: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.kstream.ui.port",
    INT,
    4050,
    "Port of the driver for the page; 0 is any.",
)
UI_HOST: ConfigEntry[str] = ConfigEntry(
    "spark.streaming.kstream.ui.host",
    STR,
    "127.0.0.1",
    "Address for the port of the page: that of this machine only. With any other a request needs the token.",
)
UI_TOKEN: ConfigEntry[str | None] = ConfigEntry(
    "spark.streaming.kstream.ui.token",
    STR,
    None,
    "Token that a request for the page needs. Without it a page that other machines reach makes one, and logs it once.",
)
RETAINED_BATCHES: ConfigEntry[int] = ConfigEntry(
    "spark.streaming.ui.retainedBatches",
    INT,
    100,
    "How many batches that have ended the page shows with all facts, such as their offsets. Of 1,000 it has a row. Spark's default is "
    "1000: there the facts of a batch are one line of text.",
    least=0,
)
