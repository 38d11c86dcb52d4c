"""One side: `python -m integration.twins SIDE LIFE PARALLELISM PROGRAM…`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from integration.twins.side import Run, load


def main() -> None:
    side, _life, _parallelism, *paths = sys.argv[1:]
    for path in map(Path, paths):
        load(path)(Run(side, path.parent))
    sys.stdout.flush()
    os._exit(0)  # what is still running, and Spark's own end, is not what was asked


main()
