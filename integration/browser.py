"""A real browser, Debian's chromium without windows, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.system_programs import program

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
]
PATIENCE_S = 30.0
ABOVE_STANDARD = 10
"""The pipes get file descriptors from here on, so that none is 3 or 4 before the shell puts them there."""


class BrowserError(Exception):
    """The browser did not start, refused a command, or what was waited for did not come."""


class Browser:
    """A chromium in a process of its own, with a profile of its own.

    Args:
        directory: its profile and its log.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._log_path = directory / "chromium.log"
        self._ids = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        commands, self._writing = (_moved(end) for end in os.pipe())
        self._reading, events = (_moved(end) for end in os.pipe())
        shell = ["bash", "-c", 'exec "$@" 3<&"$COMMANDS" 4>&"$EVENTS"', "bash"]
        command = [*shell, program("chromium") or "chromium", *FLAGS, f"--user-data-dir={directory / 'profile'}", "about:blank"]
        environment = {**os.environ, "COMMANDS": str(commands), "EVENTS": str(events), "TZ": "UTC"}
        with open(self._log_path, "ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=(commands, events),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        os.close(commands)
        os.close(events)
        threading.Thread(target=self._read, name="Browser", daemon=True).start()

    def close(self) -> None:
        """End it; returns when it is gone."""
        try:
            self.call("Browser.close", patience=5)
            self._process.wait(10)
        except (BrowserError, subprocess.TimeoutExpired):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._writing)

    def call(self, method: str, session: str | None = None, patience: float = PATIENCE_S, **parameters: Any) -> dict[str, Any]:
        """Give a command, and return its result. BrowserError if it is refused or not answered."""
        number = next(self._ids)
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers[number] = answer
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        try:
            _write_all(self._writing, json.dumps(message).encode() + b"\0")
            said = answer.get(timeout=patience)
        except (queue.Empty, OSError):
            raise BrowserError(f"chromium does not answer {method}:\n{self._log()}") from None
        finally:
            del self._answers[number]
        if "error" in said:
            raise BrowserError(f"{method}: {said['error'].get('message')}")
        return said["result"]

    def page(self, width: int = 1280, height: int = 900, scheme: str = "light") -> Page:
        """Open an empty page with storage of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        self._pages[session] = page
        page.begin(width, height, scheme)
        return page

    def _read(self) -> None:
        """Read what the browser says until it ends. Thread `Browser`."""
        rest = b""
        with os.fdopen(self._reading, "rb", buffering=0) as pipe:
            while chunk := pipe.read(1 << 20):
                *whole, rest = (rest + chunk).split(b"\0")
                for each in whole:
                    self._take(json.loads(each))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            waiting = self._answers.get(message["id"])
            if waiting is not None:
                waiting.put(message)
        elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
            page.take(message["method"], message["params"])

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")[-2000:]


@dataclass
class Seen:
    """What a page did beside what it shows: nothing of it may come from data."""

    problems: list[str] = field(default_factory=lambda: list[str]())
    """Errors of scripts, and what the console was told: violations of the content-security policy are among it."""
    dialogs: list[str] = field(default_factory=lambda: list[str]())
    requests: list[str] = field(default_factory=lambda: list[str]())
    """Addresses, also of requests that were refused."""


class Page:
    """A page of a browser. `seen` is filled by the thread that reads from the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.seen = Seen()

    def begin(self, width: int, height: int, scheme: str) -> None:
        """Prepare an empty page."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.prefer(scheme)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give a command to this page."""
        return self._browser.call(method, self._session, **parameters)

    def size(self, width: int, height: int, scale: float = 1) -> None:
        """Set the size of the window, in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Set what the system prefers: `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url: str) -> None:
        """Go to an address."""
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise BrowserError(f"{url}: {failure}")
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'", f"page at {url}")

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; of a promise, its result."""
        said = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise BrowserError(f"{expression}: {json.dumps(said['exceptionDetails'])[:2000]}")
        return said["result"].get("value")

    def text(self, selector: str) -> str:
        """What people read in the first element of a selector; empty without one."""
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def click(self, selector: str) -> None:
        """Press the first element of a selector."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """Press a key, such as `ArrowRight`, where the focus is."""
        for kind in ("rawKeyDown", "keyUp"):
            text = {"text": "\r"} if (key, kind) == ("Enter", "rawKeyDown") else {}  # without it Enter follows no link
            self.call(
                "Input.dispatchKeyEvent", type="keyDown" if text else kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text
            )

    def wait(self, expression: str, what: str, patience: float = PATIENCE_S) -> None:
        """Return when an expression is true. BrowserError if it does not become true."""
        self.until(lambda: self.value(f"Boolean({expression})"), what, patience)

    def wait_text(self, selector: str, wanted: str, patience: float = PATIENCE_S) -> None:
        """Return when the text of an element contains `wanted`."""
        self.until(lambda: wanted in self.text(selector), f"{wanted!r} in {selector}", patience)

    def until(self, reached: Callable[[], bool], what: str, patience: float = PATIENCE_S) -> None:
        """Return when `reached()` is true. BrowserError if it does not become true."""
        end = time.monotonic() + patience
        while not reached():
            if time.monotonic() > end:
                raise BrowserError(f"there was no {what} within {patience:g} s: {self.seen.problems}\n{self.text('main')[:1000]}")
            time.sleep(0.05)

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what is seen as a PNG; or the whole page."""
        clip: dict[str, Any] = {}
        if whole:
            content = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, **{k: content[k] for k in ("width", "height")}, "scale": 1}}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def take(self, method: str, event: dict[str, Any]) -> None:
        """Note an event. Thread `Browser`."""
        if method == "Runtime.exceptionThrown":
            self.seen.problems.append(json.dumps(event["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled":
            self.seen.problems.append(json.dumps(event["args"])[:2000])
        elif method == "Log.entryAdded":
            self.seen.problems.append(f"{event['entry']['source']}: {event['entry']['text']}")
        elif method == "Page.javascriptDialogOpening":
            self.seen.dialogs.append(event["message"])
        elif method == "Network.requestWillBeSent":
            self.seen.requests.append(event["request"]["url"])


KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Tab": 9, "Enter": 13, "Escape": 27}
"""The keys that tests press, with their codes."""


def _moved(end: int) -> int:
    """The same end of a pipe under a number that the standard streams and 3 and 4 do not have."""
    moved = fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, ABOVE_STANDARD)
    os.close(end)
    return moved


def _write_all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


@contextmanager
def running_browser(directory: Path) -> Iterator[Browser]:
    """A browser for the length of a with block."""
    browser = Browser(directory)
    try:
        yield browser
    finally:
        browser.close()
