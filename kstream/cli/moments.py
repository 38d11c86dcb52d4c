"""Moments as people write them on a command line."""

from __future__ import annotations

import re
from datetime import datetime

from kstream.errors import ConfigurationError

_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-\s*(\d+)\s*([smhd])")
_HINT = "give ms since the epoch, an ISO time (local, unless it names a zone), -2h (s, m, h, d) or now"


def parse_moment(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch; ConfigurationError if it is no moment."""
    text = text.strip()
    if text.isdecimal():
        return int(text)
    if text.lower() == "now":
        return now_ms
    if ago := _AGO.fullmatch(text):
        return now_ms - int(ago[1]) * _UNITS[ago[2]]
    try:
        return round(datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text).timestamp() * 1000)
    except ValueError as e:
        raise ConfigurationError(f"{text!r} is no moment: {_HINT}", key="moment", value=text) from e
