"""On a cluster and a broker of its own: `python -m integration.clustered [--kills executor=16,worker=6,driver=12,broker=6] …`.

Downtimes of five minutes in one process: `python -m integration.clustered --cluster local --kills driver=1 --behind 150 --seconds 60`.

Pauses of the broker: `python -m integration.clustered --cluster local --kills pause=10 --pattern --seconds 60`; with a failing sink
`--refusals 1 --conf spark.streaming.kstream.batch.retries=3` in place of `--pattern`.

Prints what was killed, what each restart cost and every breach. Ends with 1 if there is one. SIGTERM cuts it short.
"""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from integration.campaign import Outcome, add_kills_option, add_options, campaign, settings_of
from integration.clustered.campaign import BROKER, DRIVER, EXECUTOR, PAUSE, WORKER, ClusterCampaign
from integration.exactness.sinks import SINKS, running_sink
from integration.kafka_broker import running_broker
from integration.masters import STANDALONE, add_cluster_option, running_master

DEFAULT = f"{EXECUTOR}=16,{WORKER}=6,{DRIVER}=12,{BROKER}=6"


def cut_short(*_: object) -> NoReturn:
    """SIGTERM ends the campaign, and it judges what there is."""
    raise TimeoutError("SIGTERM")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_kills_option(parser, (EXECUTOR, WORKER, DRIVER, BROKER, PAUSE), DEFAULT)
    add_cluster_option(parser, default=STANDALONE)
    parser.add_argument("--rate", type=int, default=500, help="records a second")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="of batches")
    parser.add_argument("--behind", type=int, default=60, metavar="BATCHES", help="how long every second killed driver stays away")
    parser.add_argument("--pattern", action="store_true", help="orders is read by a pattern")
    parser.add_argument("--refusals", type=int, default=0, help="how often the sink of orders refuses every fifth batch")
    parser.add_argument("--sink", choices=SINKS, help="to which orders are also written, exactly once")
    parser.add_argument("--seconds", type=float, default=900, help="over which the kills are spread, without downtimes")
    add_options(parser, of="a setting of the job")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, cut_short)
    return campaign("clustered", given.keep, partial(have, given))


def have(given: argparse.Namespace, directory: Path) -> Outcome:
    with (
        running_broker(directory / "broker") as broker,
        running_master(given.cluster, directory) as master,
        running_sink(given.sink, directory, broker) as sink,
    ):
        clustered = ClusterCampaign(
            broker,
            master,
            directory / "run",
            seed=given.seed,
            rate=given.rate,
            interval=given.interval,
            behind=given.behind,
            pattern=given.pattern,
            refusals=given.refusals,
            sink=sink,
            conf=settings_of(given.conf),
        )
        report = clustered.run(given.kills, given.seconds)
    return report.lines_of(), report.missed


if __name__ == "__main__":
    sys.exit(main())
