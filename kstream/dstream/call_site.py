"""Where in the user's code an operator was called."""

from __future__ import annotations

import sys
from dataclasses import dataclass

_OWN_PACKAGES = ("kstream.", "kstream_kafka.", "kstream_kafka", "contextlib", "functools")


@dataclass(frozen=True, slots=True)
class CallSite:
    """`function` that was called, at `file`:`line` of the user's code."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short_form(self) -> str:
        return f"{self.function} at {self.file}:{self.line}"


def user_call_site() -> CallSite:
    """The innermost frame outside kstream, and the kstream function it called."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    function = frame.f_code.co_name
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN_PACKAGES):
        if frame.f_code.co_name != "__init__" and frame.f_code.co_name != "wrapper":
            function = frame.f_code.co_name
        frame = frame.f_back
    return CallSite(function, frame.f_code.co_filename, frame.f_lineno)
