"""Page: the page of the demo's drivers, at one address over the restart, and the browser that shows it."""

from __future__ import annotations

import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import Path

from kstream import __version__
from kstream.cli.inputs import ranges_of
from kstream.cli.terminal import echo
from kstream.storage import LocalFileStore
from kstream.ui.checkpoint_source import CheckpointSource
from kstream.ui.page_site import page_server

_NEEDED = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""On a system of X or Wayland a browser with windows needs one of these variables. Without them Python would take one that draws its text
into this terminal."""

BATCHES = 500
"""The most batches that the page shows of the checkpoint."""


class Page:
    """The address of the page. The constructor finds a free port, which both drivers then use one after the other."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port: int = server.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"

    def open(self) -> None:
        """Show the page in a browser of this machine, if there is one. Does not wait for the browser."""
        if has_windows(sys.platform, os.environ):
            threading.Thread(target=webbrowser.open, args=(self.url,), name="demo-browser", daemon=True).start()

    def keep(self, checkpoint: Path) -> None:
        """Show the page of the checkpoint at the same address, when no driver runs any more. Blocks until Ctrl-C."""
        server = page_server("127.0.0.1", self.port, CheckpointSource(LocalFileStore(checkpoint), ranges_of, __version__, BATCHES))
        server.start()
        echo(f"the page shows the checkpoint of the demo until Ctrl-C: {self.url}")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.stop()


def has_windows(platform: str, environment: Mapping[str, str]) -> bool:
    """Return whether a browser can open a window here. Pure.

    Args:
        platform: as `sys.platform`.
        environment: the variables of this process.
    """
    return platform in ("darwin", "win32") or any(environment.get(name) for name in _NEEDED)
