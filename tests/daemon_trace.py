"""The one trace that pyspark's own daemon may print at the end of a driver, however the driver ends."""

from __future__ import annotations

import re

_BROKEN_PIPE = re.compile(r"Traceback \(most recent call last\):\n(?:  File .*pyspark.*\n(?:    .*\n)*)+BrokenPipeError: .*\n")


def without_broken_pipes(output: str) -> str:
    """Return the output without what the daemon prints if its JVM has closed the connection of a worker that has something to send.

    An idle worker has, too: when its connection ends before the daemon has ended it, it tries to send the error of its read.
    """
    return _BROKEN_PIPE.sub("", output)
