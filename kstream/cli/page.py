"""`kstream page`: the page of a driver from its checkpoint, for a driver that is dead or elsewhere. Needs no Java and no pyspark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import click

from kstream import __version__
from kstream.cli.exit_codes import ReadingCode
from kstream.cli.inputs import open_existing, ranges_of, tools
from kstream.cli.terminal import clear_errors, echo, fail
from kstream.errors import ConfigurationError, PortTakenError
from kstream.http.access import is_loopback, make_token

if TYPE_CHECKING:  # each command of kstream imports this module: the room of the page is imported when it is shown
    from kstream.http.http_server import HttpServer
    from kstream.ui.checkpoint_source import CheckpointSource

PORT = 4050
LAST = 500
"""The most batches by default: with a thousand partitions a first look takes a second or two, and their plans take 150 MB."""
_TOKEN = "KSTREAM_PAGE_TOKEN"


@click.command("page")
@click.argument("path")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="The port; 0 is any.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address. Any but that of this machine needs a token.")
@click.option(
    "--token",
    envvar=_TOKEN,
    help=f"The token that the page asks for. Others may read a command line: set {_TOKEN}. Where one is needed and not set, it is made.",
)
@click.option("--last", type=click.IntRange(1, 10_000), default=LAST, show_default=True, help="The most batches, the newest.")
def page_command(path: str, port: int, host: str, token: str | None, last: int) -> None:
    """Show the page of a driver from its checkpoint, until Ctrl-C: its batches, its ledger, its last status record.

    The driver may be dead, or run elsewhere. The checkpoint is not changed. It is read again while someone looks at the page, every five
    seconds at most.

    The exit code is 3 if the checkpoint cannot be read, or the port cannot be opened.
    """
    from kstream.ui.checkpoint_source import CheckpointSource

    try:
        with clear_errors(code=ReadingCode.UNREADABLE):
            tools()
            source = CheckpointSource(open_existing(path), ranges_of, __version__, last)
        made = None if token or is_loopback(host) else make_token()
        server = _opened(host, port, source, token or made)
        server.start()
        echo(f"the page of {path} is at {server.url}{'' if made is None else f'?token={made}'} until Ctrl-C")
        try:
            threading.Event().wait()
        finally:
            server.stop()
    except KeyboardInterrupt:  # as a person ends it: no error
        raise SystemExit(int(ReadingCode.WELL)) from None


def _opened(host: str, port: int, source: CheckpointSource, token: str | None) -> HttpServer:
    """Open the port. End the program with one line if that is not possible."""
    from kstream.ui.page_site import page_server

    try:
        return page_server(host, port, source, token)
    except PortTakenError:
        fail(f"port {port} of {host} is taken, perhaps by the page of a driver: give another --port, or --port 0", ReadingCode.UNREADABLE)
    except ConfigurationError as e:
        why = e.__cause__ or e
        fail(f"the page cannot be opened on {host}:{port}: {why}", ReadingCode.UNREADABLE)
