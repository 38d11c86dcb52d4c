"""`python -m integration.pictures`: makes the pictures of the docs, docs/pictures/*.png, of a job that is simulated."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from integration.browser import Browser, BrowserError, running_browser
from integration.simulated_shop import shop_of_now
from integration.system_programs import program
from kstream.ui.page_site import page_server
from kstream.ui.page_source import PageSource

PICTURES = Path(__file__).resolve().parent.parent / "docs" / "pictures"
MOST_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: its name, whether the job is in trouble, the view and when it is whole, and how it is seen."""

    name: str
    trouble: bool
    view: str
    whole_when: str
    scheme: str = "light"
    width: int = 1280
    height: int = 1180


CHARTS = "document.querySelectorAll('.chart svg .line').length >= 4 && document.querySelectorAll('tbody tr').length > 5"
ALL = (
    Picture("page-light", False, "", CHARTS),
    Picture("page-dark", True, "", CHARTS, scheme="dark"),
    Picture("page-batch", True, "batch", "document.querySelector('.trace') !== null"),
)


@contextmanager
def _served(source: PageSource) -> Generator[str, None, None]:
    """The address of a server that shows a source, for the length of a with block."""
    server = page_server("127.0.0.1", 0, source)
    server.start()
    try:
        yield server.root
    finally:
        server.stop()


def take(browser: Browser, picture: Picture, directory: Path) -> Path:
    """Take one picture, and return its file. BrowserError if the page does not come, or the file is too large for the docs."""
    source = shop_of_now(picture.trouble).source
    failed = next((batch["batchTimeMs"] for batch in source.batches(frozenset({"FAILED"}))), 0)
    view = f"batch/{failed}" if picture.view == "batch" else picture.view
    path = directory / f"{picture.name}.png"
    with _served(source) as root:
        page = browser.page(picture.width, picture.height, picture.scheme)
        page.open(f"{root}#/{view}")
        page.wait(picture.whole_when, picture.name)
        page.value("document.fonts.ready.then(() => new Promise(requestAnimationFrame))")
        page.picture(path)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise BrowserError(f"{path.name} has {size:,} bytes, more than {MOST_BYTES:,}")
    return path


def main() -> int:
    """Make all pictures anew."""
    if program("chromium") is None:
        print("pictures: no chromium; scripts/system-packages .cache/system brings it", file=sys.stderr)
        return 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, running_browser(Path(directory)) as browser:
        for picture in ALL:
            path = take(browser, picture, PICTURES)
            print(f"{path.relative_to(PICTURES.parent.parent)} {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
