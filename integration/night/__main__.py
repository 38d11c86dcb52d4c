"""Whole nights, a quarter of an hour each, or short ones: `python -m integration.night [--short] [--cluster standalone] [direct]`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from integration.kafka_broker import running_broker
from integration.masters import Master, add_cluster_option, running_master
from integration.night.campaign import BROKER, SHORT, Durations, Night
from integration.night.direct_night import DirectNight
from integration.night.receiver_night import ReceiverNight
from integration.s3_server import running_s3
from integration.zookeeper_server import running_zookeeper
from kstream.spark.java import ensure_java


@contextmanager
def direct(directory: Path, durations: Durations, master: Master) -> Iterator[Night]:
    with running_broker(directory / "broker", BROKER) as broker, running_s3() as s3:
        yield DirectNight(directory, broker, s3, durations, master)


@contextmanager
def receiver(directory: Path, durations: Durations, master: Master) -> Iterator[Night]:
    with running_broker(directory / "broker", BROKER) as broker, running_zookeeper(directory / "zookeeper") as zookeeper:
        yield ReceiverNight(directory, broker, zookeeper, durations, master)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="each thing is away for seconds only")
    kinds = {"direct": direct, "receiver": receiver}
    parser.add_argument("kind", nargs="?", choices=kinds, help="the form of the stream; without it, one night of each")
    add_cluster_option(parser)
    given = parser.parse_args()
    ensure_java()
    chosen = [given.kind] if given.kind else list(kinds)
    return max([have(kind, kinds[kind], SHORT if given.short else Durations(), given.cluster) for kind in chosen])


def have(kind: str, make: Callable[[Path, Durations, Master], AbstractContextManager[Night]], durations: Durations, cluster: str) -> int:
    """One night; 1 if it has breaches."""
    directory = Path(tempfile.mkdtemp(prefix="night-"))
    began = time.monotonic()
    print(f"a night of the {kind} form", flush=True)
    with running_master(cluster, directory) as master, make(directory, durations, master) as night:
        night.told = lambda line: print(f"{time.monotonic() - began:5.0f} s  {line}", flush=True)
        verdict = night.run()
        again = f"{night.came_again()} came again; " if isinstance(night, ReceiverNight) else ""
    breaches = verdict.breaches()
    counts = f"{verdict.produced:,} records; {again}{verdict.restarts} restarts"
    print(f"{counts}; {verdict.lines} lines of log besides those of batches")
    print("\n".join(breaches) or "every record was counted exactly once", f"(log: {night.log})" if breaches else "")
    if not breaches:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
