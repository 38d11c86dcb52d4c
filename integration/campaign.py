"""What campaigns share: one prepares a job and its servers, lets faults happen at drawn moments, and judges what is left.

Each has a job, faults and a verdict of its own, and its command is `campaign`. `integration.night` and `integration.received` have no
records to keep, and print otherwise.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from integration.driver_process import Driver

Outcome: TypeAlias = tuple[Sequence[str], Sequence[str]]
"""The lines that a campaign prints at its end, the last of which is the verdict; and what is wrong."""


def add_options(parser: argparse.ArgumentParser, setting: str = "--conf", of: str = "a setting of the driver") -> None:
    """Add --seed, --keep, and one that may come again and again with a setting."""
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(setting, action="append", default=[], metavar="KEY=VALUE", help=of)
    parser.add_argument("--keep", action="store_true", help="leave the directory with all records behind")


def add_kills_option(parser: argparse.ArgumentParser, kinds: Collection[str], default: str) -> None:
    """Add --kills, whose value is like `executor=3,driver=1`."""

    def kills(text: str) -> dict[str, int]:
        found = {kind: int(count) for kind, _, count in (part.partition("=") for part in text.split(",") if part)}
        if unknown := found.keys() - set(kinds):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return found

    parser.add_argument("--kills", type=kills, default=default, metavar="KIND=N,…", help=f"of each kind; default {default}")


def campaign(name: str, keeps: bool, had: Callable[[Path], Outcome]) -> int:
    """Have a campaign in a new directory, and print what came of it. Return the exit code: 1 if it has breaches.

    Args:
        name: begins the name of the directory.
        keeps: whether the directory stays. After a breach it stays in any case.
        had: has the campaign in the directory.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    lines, breaches = had(directory)
    stays = keeps or bool(breaches)
    print("\n".join(lines), f"(records of it: {directory})" if stays else "")
    if not stays:
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if breaches else 0


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """`key=value` each, as a mapping."""
    return dict(pair.split("=", 1) for pair in pairs)


def in_any_order(kills: Mapping[str, int], chance: random.Random) -> list[str]:
    """The kind of each kill, shuffled."""
    kinds = [kind for kind, count in kills.items() for _ in range(count)]
    chance.shuffle(kinds)
    return kinds


def in_words(kills: Mapping[str, int]) -> str:
    """Like `2 driver, 1 executor`."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()))


def wait_while_it_works(
    driver: Driver, reached: Callable[[], object], what: str, tried: Callable[[], int], log_tail: Callable[[], str], patience_s: float
) -> None:
    """Return when that is reached. AssertionError, with the log, if the driver ends first, or begins no batch for so long.

    As long as batches are run the driver has time: after many kills it has much to make up for. `tried` says how often one was begun.
    """
    attempts, end = -1, 0.0
    while not reached():
        if (now := tried()) != attempts:
            attempts, end = now, time.monotonic() + patience_s
        if driver.poll() is not None or time.monotonic() > end:
            state = "still runs" if driver.poll() is None else f"ended with {driver.returncode}"
            raise AssertionError(f"the driver did not {what}; it {state}:\n{log_tail()}")
        time.sleep(0.1)
