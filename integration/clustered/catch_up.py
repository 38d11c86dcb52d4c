"""What each restart of a campaign cost: how long no driver ran, how many batches were behind, and when the job was on time again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from integration.clustered.job import ORDERS
from integration.exactness.verdict import read_lines

ON_TIME = 3
"""A batch that ends within so many intervals after its time is on time."""
FAST = 1.5
"""A job that works off so many times its input can catch up, and is judged."""
FLOWING = 2
"""Records flow within so many batches of a start."""
MOST = 3
"""So many times its downtime such a job may take."""


@dataclass(frozen=True)
class CatchUp:
    """One restart. Times in seconds."""

    away_s: float
    """From the last batch that the old driver had ended to the start of the new one."""
    late: int
    """Batches whose times had passed at the start."""
    start_s: float | None
    """From the start of the driver to the end of its first batch; None if it ended none."""
    caught_up_s: float | None
    """From the start of the driver to the first batch that was on time; None if another kill came first."""
    speed: float
    """Records that batches read in a second of work meanwhile, by the input of a second."""
    first_records: int | None
    """The number of the first batch of the driver that had records; None if none had."""
    empty: int
    """Batches without records, before the first one that was on time and before the last one of the run that had records."""
    judged: bool
    """Whether there was a downtime on purpose."""

    @property
    def breaches(self) -> list[str]:
        """What is wrong with a restart after a downtime on purpose, whatever the machine."""
        wrong = {
            f"no records in its first {FLOWING} batches": self.first_records is None or self.first_records > FLOWING,
            "batches were empty while records waited": self.empty > 0,
        }
        return [f"{words}: {self}" for words, breached in wrong.items() if breached and self.judged]

    @property
    def is_slow(self) -> bool:
        """Whether such a restart took too long. After a short downtime the start of Spark, and so the machine, decides."""
        took = self.caught_up_s
        return self.judged and self.speed >= FAST and (took is None or took > MOST * self.away_s)

    def __str__(self) -> str:
        start = "no batch" if self.start_s is None else f"first batch after {self.start_s:.1f} s"
        end = "not on time before the next end" if self.caught_up_s is None else f"on time after {self.caught_up_s:.1f} s"
        on_purpose = " on purpose" if self.judged else ""
        flow = f"records in batch {self.first_records}, {self.empty} empty"
        return f"away for {self.away_s:.1f} s{on_purpose}, {self.late} batches late, {start}, {end}, {flow}, {self.speed:.1f} × the input"


def catch_ups(root: Path, interval: float, rate: int, behind: int) -> list[CatchUp]:
    """One for each driver after the first, from what the drivers have noted."""
    starts, ended = read_lines(root / "starts.jsonl"), read_lines(root / "ended.jsonl")
    began: dict[tuple[int, int], float] = {}
    read: dict[int, int] = {}
    for attempt in read_lines(root / ORDERS / "attempts.jsonl"):
        began[attempt["pid"], attempt["time"]] = attempt["at"]
        read[attempt["time"]] = sum(until - start for _, _, start, until in attempt["ranges"])
    last = max((time for time, count in read.items() if count), default=0)
    found: list[CatchUp] = []
    for start in starts[1:]:
        before = [e["at"] for e in ended if e["at"] < start["at"]]
        own = [e for e in ended if e["pid"] == start["pid"]]
        on_time = next((n for n, e in enumerate(own) if e["at"] - e["time"] / 1000 < ON_TIME * interval), None)
        meanwhile = own[: on_time + 1] if on_time is not None else own
        records = [read[e["time"]] for e in meanwhile]
        worked = sum(e["at"] - began[e["pid"], e["time"]] for e in meanwhile)
        away = start["at"] - before[-1] if before else 0.0
        found.append(
            CatchUp(
                away_s=away,
                late=int(away / interval),
                start_s=own[0]["at"] - start["at"] if own else None,
                caught_up_s=None if on_time is None else own[on_time]["at"] - start["at"],
                speed=sum(records) / worked / rate if worked else 0.0,
                first_records=next((n for n, count in enumerate(records, start=1) if count), None),
                empty=sum(read[e["time"]] == 0 and e["time"] < last for e in meanwhile),
                judged=behind > 0 and away >= behind * interval,
            )
        )
    return found
