"""A Spark Connect server, started by Spark's own script, and what a client of it needs beside pyspark.

with running_connect(folder) as url: subprocess.run([sys.executable, "client.py", url], env=client_environment())
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from integration.clean_venv import ROOT
from integration.kafka_jars import CACHE
from integration.kafka_node import die_with_parent

CLIENT = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25")
"""What `pyspark[connect]` has beside pyspark, pandas and pyarrow."""
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}
_PATIENCE_S = 120.0


class ConnectServerError(Exception):
    """It did not come up; its own words are in the message."""


@contextmanager
def running_connect(folder: Path) -> Iterator[str]:
    """A server for the length of a with block; yields its URL. The Python of its workers is this one, with this checkout on its path.

    Args:
        folder: for its log and its files; it is made.

    Raises:
        ConnectServerError: it does not come up.
    """
    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_PID_DIR": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "connectors"))),
    }
    command = ["bash", str(home / "sbin" / "start-connect-server.sh"), "--wait"]
    command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
    try:
        _wait(server, port, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Returns when the server listens."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if server.poll() is not None or time.monotonic() > end:
            raise ConnectServerError(f"the server does not listen:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


def client_environment() -> dict[str, str]:
    """The environment of a client of this Python. Its packages are fetched now if they are not in `.cache/` yet."""
    packages = CACHE / f"connect-client-{pyspark.__version__}"
    if not packages.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=packages.name, dir=CACHE) as work:
            installer = (
                ["uv", "pip", "install", "--python", sys.executable] if shutil.which("uv") else [sys.executable, "-m", "pip", "install"]
            )
            command = [*installer, "--quiet", "--target", f"{work}/packages", *CLIENT]
            subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
            Path(work, "packages").rename(packages)  # a fetch that was cut short leaves nothing
    return {**os.environ, "PYTHONPATH": str(packages)}
