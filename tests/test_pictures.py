"""The pictures of the pages: drawn by the script, told to screen readers, readable on light and dark pages, and shown where they are."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "internals").glob("*.md")]
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
SVG = "{http://www.w3.org/2000/svg}"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_pictures", ROOT / "scripts" / "draw_pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
DRAWN = {f"{picture.name}.svg": picture.svg() for picture in (draw() for draw in SCRIPT.PICTURES)}


def test_the_pictures_are_what_the_script_draws() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.svg")} == DRAWN, "run: python scripts/draw_pictures.py"


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_has_a_title_and_a_description_for_screen_readers(name: str) -> None:
    root = ElementTree.fromstring(DRAWN[name])
    named = {element.get("id"): element.text or "" for element in root if element.tag in (f"{SVG}title", f"{SVG}desc")}
    assert root.get("role") == "img"
    assert (root.get("aria-labelledby") or "").split() == list(named)
    assert all(named.values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_drawn_picture_that_a_page_shows_is_there_and_has_a_text(page: Path) -> None:
    for text, link in SHOWN.findall(page.read_text()):
        assert text, f"{page.name}: {link} has no text for those who do not see it"
        if link.endswith(".svg"):
            assert (page.parent / link).is_file(), f"{page.name}: {link}"


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {Path(link).name for page in PAGES for _, link in SHOWN.findall(page.read_text())}
    assert set(DRAWN) <= shown


def luminance(color: str) -> float:
    """The relative luminance of the Web Content Accessibility Guidelines."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("palette", [SCRIPT.LIGHT, SCRIPT.DARK], ids=["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(palette: dict[str, str]) -> None:
    for ink in ("ink", "muted"):
        for behind in ("page", *SCRIPT.LOOKS):
            dark, light = sorted([luminance(palette[ink]), luminance(palette[behind])])
            assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{ink} on {behind}"


def test_a_text_that_does_not_fit_is_refused() -> None:
    picture = SCRIPT.Picture("p", "title", "description", 100, 100)
    with pytest.raises(ValueError, match="wider than its box"):
        picture.box(0, 0, 50, 50, "too long for the box")
    with pytest.raises(ValueError, match="leaves the picture"):
        picture.text(90, 50, "too long")
