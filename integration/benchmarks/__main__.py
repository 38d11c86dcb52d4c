"""All benchmarks, each in a process of its own, one after the other."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "kafka_read",
    "poison_records",
    "data_frames",
    "structured",
    "structured_sink",
    "registry_values",
    "typed_values",
    "bookkeeping",
    "map_with_state",
    "inverse_window",
    "receivers",
    "operating",
    "metrics",
    "page",
    "once",
    "kafka_sink",
)


def main() -> int:
    return max(subprocess.run([sys.executable, "-m", f"integration.benchmarks.{name}"], check=False).returncode for name in MODULES)


if __name__ == "__main__":
    sys.exit(main())
