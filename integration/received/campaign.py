"""A steady load, kills at random moments, and the verdict."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.campaign import in_words
from integration.received.acked_source import AckedSource
from integration.received.processes import block_stores, children, executors, kill, remove_work

EXECUTORS = 3
FAULTS = ("executor", "driver", "both")
_PATIENCE = 240.0


@dataclass
class Verdict:
    kills: Counter[str]
    acked: int
    missing: list[int]
    doubled: list[int]
    """In more than one batch, although the source did not send them again."""
    other_content: list[str]
    """Batches that ran again with other records."""
    ran_again: int
    batches: int
    failed: list[str]
    """Why outputs failed; a batch that is run again may be whole all the same."""
    orphans: list[int]
    """Block stores whose executors are dead."""

    @property
    def breaches(self) -> list[str]:
        named = {"missing": self.missing, "doubled": self.doubled, "other content": self.other_content, "orphans": self.orphans}
        return [f"{len(found)} {name}: {found[:20]} … {found[-1]}" for name, found in named.items() if found]

    def __str__(self) -> str:
        failed = f"; of {len(self.failed)} outputs that failed, the last: {self.failed[-1]}" if self.failed else ""
        return (
            f"killed: {in_words(self.kills)}; {self.acked} records acknowledged, {self.batches} batches, {self.ran_again} run again, "
            f"{len(self.breaches)} breaches {self.breaches or ''}{failed}"
        )


@dataclass
class _Driver:
    process: subprocess.Popen[str]
    said: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changed: threading.Condition = field(default_factory=threading.Condition)

    def listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                with self.changed:
                    self.said.append(json.loads(line))
                    self.changed.notify_all()
        with self.changed:
            self.said.append({"ended": True})
            self.changed.notify_all()

    def wait(self, word: str, count: int = 1, patience: float = _PATIENCE) -> list[Any]:
        def heard() -> list[Any]:
            return [said[word] for said in self.said if word in said]

        with self.changed:
            reached = self.changed.wait_for(lambda: len(heard()) >= count or {"ended": True} in self.said, patience)
            assert reached and len(heard()) >= count, f"the driver never said {word!r}: {self.said[-5:]}"
            return heard()


class Campaign:
    """One checkpoint (or none), one source, drivers one after the other.

    `master`: Spark's, by default a local cluster of so many executors. `checkpoint`: its path or URL, else it lies in the folder;
    `environment`: what drivers, and by them executors, need to reach it.
    """

    def __init__(
        self, folder: Path, seed: int, *, logged: bool = True, rate: int = 400, executors: int = EXECUTORS, master: str | None = None,
        checkpoint: str | None = None, environment: Mapping[str, str] | None = None, conf: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._executors = executors
        self._environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})}
        self.source = AckedSource(rate)
        self.kills: Counter[str] = Counter()
        self.ran_again = 0
        self.other_content: list[str] = []
        self.failed: list[str] = []
        self._random = random.Random(seed)
        self._applications: list[str] = []
        self._stores_seen = 0
        (folder / "out").mkdir(parents=True)
        options = {
            "master": master or f"local-cluster[{executors},2,1024]", "port": self.source.port, "output": str(folder / "out"),
            "checkpoint": checkpoint or str(folder / "checkpoint") if logged else None,
            "conf": {"spark.streaming.receiver.writeAheadLog.enable": str(logged).lower(), **(conf or {})},
        }  # fmt: skip
        (folder / "options.json").write_text(json.dumps(options))
        self.driver = self._start()

    def run(self, faults: Sequence[str], least_s: float = 2.0, most_s: float = 6.0, load: int = 1) -> Verdict:
        """One kill after the other, each some seconds after the last one has been got over; then all that was produced is worked off.
        Without a log one executor may die at a time, not two. `load`: how many seconds' worth of records are acknowledged before the first.
        """
        for _ in range(load):
            self._go_on()
        for fault in faults:
            time.sleep(self._random.uniform(least_s, most_s))
            self.meet(fault)
        return self.finish()

    def meet(self, fault: str) -> None:
        """A kill that has been got over: what had been acknowledged is in a batch, and more is acknowledged."""
        self._kill(fault)
        self.kills[fault] += 1
        self._get_over(self.source.acked)

    def finish(self) -> Verdict:
        end = time.monotonic() + _PATIENCE
        while self._executors_with_stores() < self._executors and time.monotonic() < end:
            time.sleep(0.1)
        self.source.stop_producing()
        self.source.wait(lambda source: source.acked == source.produced, _PATIENCE)
        self.stop_gracefully()
        return self.verdict()

    def stop_gracefully(self) -> None:
        assert self.driver.process.stdin is not None
        self.driver.process.stdin.close()
        self.driver.wait("stopped", patience=2 * _PATIENCE)  # receivers, then batches
        self.driver.process.wait(_PATIENCE)
        self._applications.append(self.application())
        self._note_again()

    def verdict(self) -> Verdict:
        found: Counter[int] = Counter()
        files = self._files()
        for file in files:
            found.update(json.loads(file.read_text()))
        acked = self.source.acked
        return Verdict(
            self.kills, acked, [n for n in range(acked) if n not in found],
            sorted(n for n, count in found.items() if count > 1 and n not in self.source.resent),
            self.other_content, self.ran_again, len(files), self.failed, self._orphans(),
        )  # fmt: skip

    def close(self) -> None:
        self.source.close()
        pid = self.driver.process.pid
        kill(*children(pid), pid)
        self.driver.process.wait()
        for application in self._applications:
            remove_work(application)

    def receiver_on(self) -> str:
        """The executor of the receiver, as it was last told."""
        return self.driver.wait("started")[-1]

    def application(self) -> str:
        return self.driver.wait("application")[0]

    def _start(self) -> _Driver:
        with open(self.folder / "driver.log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "integration.received.job", str(self.folder / "options.json")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment,
            )  # fmt: skip
        driver = _Driver(process)
        threading.Thread(target=driver.listen, daemon=True).start()
        return driver

    def _go_on(self) -> None:
        """Blocks until a good deal more has been acknowledged."""
        before = self.source.acked
        self.source.wait(lambda source: source.acked > before + self.source.rate, _PATIENCE)

    def _get_over(self, acked: int) -> None:
        """Blocks until what was acknowledged is in a batch, every executor has a store, and more is acknowledged."""
        seen: set[int] = set()
        known: set[Path] = set()

        def all_seen() -> bool:
            for file in set(self._files()) - known:
                seen.update(json.loads(file.read_text()))
                known.add(file)
            return all(n in seen for n in range(acked))

        end = time.monotonic() + _PATIENCE
        while not (all_seen() and self._executors_with_stores() == self._executors):
            assert time.monotonic() < end, (
                f"{acked} were acknowledged, of which {sum(n not in seen for n in range(acked))} are in no batch; "
                f"{self._executors_with_stores()} executors have stores; the driver said last {self.driver.said[-5:]}"
            )
            time.sleep(0.1)
        self._go_on()

    def _executors_with_stores(self) -> int:
        living, stores = executors(self.application()), block_stores(self.application())
        self._stores_seen = max(self._stores_seen, len(stores))
        return len(set(living) & set(stores))

    def _files(self) -> list[Path]:
        return [file for file in (self.folder / "out").iterdir() if not file.name.startswith(".")]

    def _kill(self, fault: str) -> None:
        if fault in ("executor", "both"):
            living = executors(self.application())
            of_receiver = living.get(self.receiver_on()) if not self.kills[fault] else None  # the first time, then any
            kill(of_receiver or self._random.choice(list(living.values())))
        if fault in ("driver", "both"):
            pid = self.driver.process.pid
            kill(pid, *(child for child in children(pid)))
            self.driver.process.wait()
            self.driver.wait("ended")
            self._note_again()
            self._applications.append(self.application())
            self.driver = self._start()

    def _note_again(self) -> None:
        again = [said for said in self.driver.said if "again" in said]
        self.ran_again += len(again)
        self.other_content += [said["again"] for said in again if not said["same"]]
        self.failed += [said["failed"] for said in self.driver.said if "failed" in said]

    def _orphans(self) -> list[int]:
        """Once the drivers are gone no store is to live on; they end with their executors, which takes a moment."""
        assert self._stores_seen == self._executors, "no stores were found while they must have been there"
        end = time.monotonic() + 20
        while (left := [pid for app in self._applications for pid in block_stores(app).values()]) and time.monotonic() < end:
            time.sleep(0.1)
        return left
