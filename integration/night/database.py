"""A small database behind HTTP, as a process of its own that can be killed and started again: what a batch has written replaces what it
wrote before, in one transaction. An order has its id as the key: the last batch that wrote it has it.

`python -m integration.night.database FILE PORT`; with port 0 it prints the port that it has.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


class Database:
    """The process, and its file, which can be read also while the process is away."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts the process, the first time or again on the same port with the same data; returns when it answers."""
        command = [sys.executable, "-m", "integration.night.database", str(self.file), str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()

    def ids(self) -> list[int]:
        """The records of all batches, sorted; one that two batches have counted is there twice."""
        return sorted(row[0] for row in self._rows("select id from records"))

    def orders(self) -> list[int]:
        """The orders, sorted; each is there once, however many batches wrote it."""
        return sorted(row[0] for row in self._rows("select id from orders"))

    def totals(self) -> dict[str, int]:
        """The totals by key that the newest batch has written."""
        return dict(self._rows("select key, total from totals where batch = (select max(batch) from totals)"))

    def _rows(self, query: str) -> list[Any]:
        connection = sqlite3.connect(self.file, timeout=60)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


class Handler(BaseHTTPRequestHandler):
    """POST /records, /totals and /orders, with {"batch": ms, "rows": […]}."""

    connection: sqlite3.Connection

    def do_POST(self) -> None:
        posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        table, batch = self.path.strip("/"), posted["batch"]
        with Handler.connection as transaction:
            if table != "orders":
                transaction.execute(f"delete from {table} where batch = ?", (batch,))
            marks = "(?, ?, ?)" if table == "totals" else "(?, ?)"
            transaction.executemany(f"insert or replace into {table} values {marks}", [(batch, *row) for row in posted["rows"]])
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    Handler.connection = sqlite3.connect(sys.argv[1])
    Handler.connection.execute("create table if not exists records (batch integer, id integer)")
    Handler.connection.execute("create table if not exists orders (batch integer, id integer primary key)")
    Handler.connection.execute("create table if not exists totals (batch integer, key text, total integer)")
    Handler.connection.commit()
    HTTPServer.allow_reuse_address = True
    server = HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
