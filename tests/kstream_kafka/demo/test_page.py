"""The page of `kstream demo`: a browser with windows, or none."""

from __future__ import annotations

import socket

import pytest
from kstream_kafka.demo.page import Page, has_windows


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("darwin", {}, True),
        ("win32", {}, True),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("linux", {"DISPLAY": "", "TERM": "xterm"}, False),
    ],
)
def test_a_browser_is_opened_only_where_it_has_windows(platform: str, environment: dict[str, str], expected: bool) -> None:
    assert has_windows(platform, environment) is expected


def test_the_port_is_free_when_it_is_chosen_and_only_this_machine_is_asked() -> None:
    page = Page()
    assert page.url == f"http://127.0.0.1:{page.port}/"
    with socket.create_server(("127.0.0.1", page.port)):
        pass
