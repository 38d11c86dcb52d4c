"""The long campaign: kills of every kind under a steady load. Ends with 1 if anything acknowledged is missing or twice."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from integration.masters import add_cluster_option, running_master
from integration.received.campaign import FAULTS, Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=1)
    add_cluster_option(parser)
    arguments = parser.parse_args()
    breaches = 0
    for logged, faults in ((True, FAULTS), (False, ("executor",))):
        folder = Path(tempfile.mkdtemp(prefix="kstream-received-"))
        with running_master(arguments.cluster, folder, cores=2) as master:
            url = master.settings.get("spark.master")
            campaign = Campaign(folder / "job", arguments.seed, logged=logged, master=url, environment=master.environment)
            try:
                verdict = campaign.run(list(faults) * arguments.kills)
            finally:
                campaign.close()
        print(f"{'with a write-ahead log' if logged else 'two replicas'}: {verdict}", flush=True)
        breaches += len(verdict.breaches)
        shutil.rmtree(folder)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
