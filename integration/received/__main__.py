"""The long campaign: kills of every kind under a steady load. Ends with 1 if anything acknowledged is missing or twice."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from integration.received.campaign import FAULTS, Campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    breaches = 0
    for logged, faults in ((True, FAULTS), (False, ("executor",))):
        folder = Path(tempfile.mkdtemp(prefix="kstream-received-"))
        campaign = Campaign(folder, arguments.seed, logged=logged)
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
