"""The documentation's code runs: README and the pages of docs/, each page one program, against a real broker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT) for path in (ROOT / "docs").glob("*.md"))

COMMANDS = ("kstream checkpoint show", "kstream lag", "kstream offsets", "kstream ledger")
"""What a page shows that can be run as it stands: a job to run is none of them."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run_command(line: str, directory: Path, kafka: KafkaBroker) -> None:
    """A command as the text has it, with this broker and this directory."""
    words = line.partition("#")[0].replace("/var/lib/orders", str(directory)).replace("localhost:9092", kafka.bootstrap).split()
    done = subprocess.run([sys.executable, "-m", "kstream.cli", *words[1:]], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def orders(kafka: KafkaBroker) -> KafkaBroker:
    """A broker with a topic as the pages have it."""
    kafka.create_topic("orders", 2)
    kafka.produce("orders", [(f"order-{i}", f"item {i % 7}", i % 2) for i in range(40)])
    return kafka


def program(page: Path, directory: Path, kafka: KafkaBroker) -> Path:
    """The page's Python, with this broker and this directory instead of those of the text."""
    text = "\n".join(blocks(page, "python")).replace("localhost:9092", kafka.bootstrap).replace("/var/lib/orders", str(directory))
    assert text.strip(), f"{page} has no code"
    path = directory / "page.py"
    path.write_text(text)
    return path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_of_a_page_runs(page: Path, orders: KafkaBroker, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, program(ROOT / page, tmp_path, orders)], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for line in (line for block in blocks(ROOT / page, "sh") for line in block.splitlines() if line.startswith(COMMANDS)):
        run_command(line, tmp_path, orders)


@pytest.mark.timeout(180)
def test_the_readmes_job_runs_until_it_is_told_to_stop_and_its_commands_look_inside(orders: KafkaBroker, tmp_path: Path) -> None:
    script, output = program(ROOT / "README.md", tmp_path, orders), tmp_path / "output"
    with open(output, "wb") as out:
        job = subprocess.Popen([sys.executable, script], stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            end = time.monotonic() + 90
            while "OffsetRange(" not in output.read_text(errors="replace"):
                assert job.poll() is None and time.monotonic() < end, output.read_text(errors="replace")[-3000:]
                time.sleep(0.2)
            job.send_signal(signal.SIGTERM)
            job.wait(60)
        finally:
            if job.poll() is None:
                job.kill()
                job.wait()
    shown = [line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines() if line.startswith(COMMANDS)]
    for line in shown:
        run_command(line, tmp_path, orders)
    assert shown, "the README shows no command"
