"""Data that wants to be more than data: whatever names, errors and settings say, the page shows it as text and keeps its form."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from integration.browser import Browser
from integration.page_figures import FakePage, a_lag, a_shop
from integration.shown_page import Serve, a_receiver, page_servers, said_nothing, shown

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]
VIEWS = ("", "batches", "lag", "receivers", "decisions", "ledger", "settings")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with page_servers() as start:
        yield start


HOSTILE = [
    "<script>window.hit = 1; alert(1)</script>",
    '<img src="http://evil.example/x.png" onerror="window.hit = 1">',
    '"><svg onload=alert(1)><style>*{display:none}</style>',
    "javascript:alert(document.domain)",
    "data:text/html,<script>alert(1)</script>",
    "</pre></td></table><iframe src=//evil.example></iframe><base href=http://evil.example/>",
    'http://evil.example/" onclick="alert(1)" style="position:fixed;inset:0',
    "${alert(1)} {{constructor.constructor('alert(1)')()}} %3Cscript%3E &lt;script&gt; \\u003cscript\\u003e",
    "\u202egnp.exe\u2066 \u200f\u200e\u202a\u0000\u0007\u001b[31m\u2028\u2029\ufeff",
    "عربى שלום 漢字 👩‍👩‍👧‍👦 Z̸̢̛͔a̷l̵g̶o̸ " * 20,
    "W" * 10_000,
    "ﷺ𒐫꧅" * 3_000,
    "\n".join(["line"] * 2_000),
    "__proto__",
    "constructor",
    " ",
    "",
    "\ud800 alone",
]


class Hostile:
    """A source in which each text of each answer is hostile, also names of facts. Numbers stay."""

    def __init__(self, source: FakePage, seed: int) -> None:
        self._source, self._seed = source, seed

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any) -> Any:
            return self._turned(getattr(self._source, name)(*arguments), random.Random(f"{self._seed} {name}"))

        return answer

    def application(self) -> Any:
        return {"id": "local-1", "name": random.Random(self._seed).choice(HOSTILE)}

    def _turned(self, value: Any, wave: random.Random) -> Any:
        if isinstance(value, str):
            return wave.choice(HOSTILE)
        if isinstance(value, list):
            return [self._turned(each, wave) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            turned = {key: self._turned(each, wave) for key, each in cast("dict[str, Any]", value).items()}
            for key in ("facts", "limitedBy"):
                if isinstance(turned.get(key), dict):
                    turned[key] |= {name: wave.choice(HOSTILE) for name in wave.sample(HOSTILE, 6)}
            if "blocks" in turned:
                turned |= {"blocks": HOSTILE, "files": HOSTILE}
            return turned
        return value


@pytest.mark.parametrize("seed", range(4))
def test_hostile_names_run_nothing_ask_for_nothing_and_break_no_layout(browser: Browser, serve: Serve, seed: int) -> None:
    source = a_shop(trouble=True)
    source.receiver_list = [a_receiver(n) for n in range(3)]
    source.lags = [a_lag({"orders": 4 + 60 * seed, "refunds": 2}, random.Random(seed))]
    failed = next(batch for batch in source.known if batch["status"] == "FAILED")
    server = serve(Hostile(source, seed))
    for width in (1280, 400):
        page = shown(browser, server, width=width)
        scripts = page.value("document.scripts.length")
        for view in (*VIEWS, f"batch/{failed['batchTimeMs']}"):
            page.value(f"location.hash = '#/{view}'")
            page.wait("document.querySelector('#view tbody tr, #view .empty:not([hidden])')", f"something in {view}")
            page.wait("document.querySelector('#stale-note').hidden", "no note")
            time.sleep(0.3)
            assert page.value("document.documentElement.scrollWidth") <= width, view
            assert page.value("document.documentElement.scrollHeight") < 40_000, view
            assert page.value("document.querySelector('#headline').offsetHeight") < 900, view
            for selector in (
                "iframe",
                "img",
                "base",
                "style",
                "[onclick]",
                "[onload]",
                "[onerror]",
                "[style*=fixed]",
                'a[href^="javascript:" i]',
            ):
                assert page.value(f"document.querySelectorAll({json.dumps(selector)}).length") == 0, (view, selector)
        assert page.value("document.scripts.length") == scripts and page.value("typeof window.hit") == "undefined"
        said_nothing(page, server)
