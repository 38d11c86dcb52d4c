"""What the commands of simulators print, and what a simulation prints in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]


def tell(seed: int, trace: Sequence[str], broken: Sequence[str]) -> None:
    """Print the trace of a seed, and what is broken. SystemExit with 1 if anything is."""
    click.echo("\n".join(trace))
    click.echo(f"seed {seed}: {'all held' if not broken else 'broken:'}")
    for line in broken:
        click.echo(f"  {line}")
    if broken:
        raise SystemExit(1)


def printed_in_a_process_of(hash_seed: str, code: str) -> str:
    """What Python code prints in a process with this PYTHONHASHSEED."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=ROOT)
    return done.stdout
