"""docs/security.md knows each port of a running job: who listens, on which address, and the setting that moves it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.kafka_node import free_ports
from integration.listening import Listening
from integration.masters import executor_settings
from integration.spark_cluster import running_cluster
from integration.submitted import SPARK_HOME
from kstream.context.settings_table import settings_table

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "security.md"
DRIVER = "127.0.0.9"
EXECUTORS = {"127.0.0.1", "127.0.0.2"}
ADDRESSES = {"loopback": {"127.0.0.1"}, "the driver's": {DRIVER}, "the executor's": EXECUTORS, "all, or SPARK_LOCAL_IP": {"0.0.0.0"}}
"""The address in words, and what it is in the test: the driver and one executor have addresses of their own, which are not loopback."""
NOT_HERE = {("JVM for Hadoop", "calls of py4j")}
"""It needs HDFS."""


@dataclass(frozen=True)
class Row:
    process: str
    what: str
    address: str
    port: str
    setting: str
    """That of the port; "" if it cannot be chosen."""


def rows() -> Iterator[Row]:
    lines = PAGE.read_text().partition("## Ports")[2].partition("## ")[0].splitlines()
    for line in lines:
        if line.startswith("| ") and not line.startswith("| process"):
            process, what, address, port, closed, _who = (cell.strip() for cell in line.strip("|").split(" | "))
            settings = [word for word in closed.split("`")[1::2] if word.endswith(".port")]
            yield Row(process, what, address, port, settings[0] if settings else "")


ROWS = list(rows())


@pytest.mark.timeout(300)
def test_each_port_of_a_running_job_is_in_the_table_and_each_row_is_found(tmp_path: Path) -> None:
    moved = dict(zip([row.setting for row in ROWS if row.setting], free_ports(len(ROWS)), strict=False))
    conf = {
        **executor_settings(),
        **{key: str(port) for key, port in moved.items()},
        "spark.driver.host": DRIVER,
        "spark.cores.max": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.streaming.kstream.ui.enabled": "true",
    }  # fmt: skip
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME)}
    del environment["SPARK_LOCAL_IP"]
    with running_cluster(tmp_path / "cluster", workers=2, cores=1, memory="600m") as cluster:
        done = subprocess.run(
            [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, *options, str(ROOT / "integration" / "listening_job.py")],
            capture_output=True, text=True, timeout=200, check=False, env=environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = [Listening(*one) for one in json.loads(done.stdout.splitlines()[-1])]
    print(*found, sep="\n")
    of = {one: [row for row in ROWS if fits(row, one, moved)] for one in found}
    assert [one for one, fitting in of.items() if not fitting] == [], "a port that the table does not know"
    missing = {(row.process, row.what) for row in ROWS} - {(row.process, row.what) for fitting in of.values() for row in fitting}
    assert missing == NOT_HERE
    assert {one.host for one in found if one.process == "executor's JVM"} == EXECUTORS
    own = [one for one in found if one.process == "driver" and one.host in ADDRESSES["loopback"]]
    assert len(own) == len([row for row in ROWS if (row.process, row.address) == ("driver", "loopback")]), "rows that look alike"


def fits(row: Row, one: Listening, moved: dict[str, int]) -> bool:
    """Whether the row tells of this port. One that a setting chooses must have the number that the setting has here."""
    port = one.port == moved[row.setting] if row.setting else one.port not in moved.values()
    return port and row.process == one.process and one.host in ADDRESSES[row.address]


def test_the_table_has_the_defaults_of_the_settings_of_ports() -> None:
    defaults = {entry.key: entry.default for entry in settings_table().entries}
    words = {None: "none", 0: "any"}
    shown = {row.setting: row.port for row in ROWS if row.setting in defaults}
    assert len(shown) == 3
    assert shown == {key: words.get(defaults[key], str(defaults[key])) for key in shown}
