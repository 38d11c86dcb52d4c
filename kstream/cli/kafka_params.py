"""Kafka parameters of a command: what the checkpoint stores, a file, and the command line, which wins in that order.

Names may be of either dialect; the connector makes sense of them. Values may be secret: nothing here shows one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kstream.checkpoint.connections import read_connections
from kstream.errors import ConfigurationError
from kstream.storage import FileStore

BOOTSTRAP = "bootstrap.servers"
KIND = "kafka-direct"
_BOOTSTRAP_NAMES = (BOOTSTRAP, "metadata.broker.list")


def stored_params(store: FileStore) -> dict[int, dict[str, Any]]:
    """Stream id → the parameters it was made with, of the streams that store them; streams with a secret do not."""
    return read_connections(store, KIND)


def given_params(bootstrap: str | None, params: Iterable[str], file: str | None) -> dict[str, Any]:
    """What the user gives: of `--bootstrap`, `--param`, `--params-file` the earlier wins. ConfigurationError if it cannot be read."""
    given = read_params_file(Path(file)) if file is not None else {}
    for text in params:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            name = key if equals or _NAME.fullmatch(key) else "(not shown: it may hold a secret)"
            raise ConfigurationError(f"--param {name!r} has no value: give KEY=VALUE", key="param", value=name)
        given[key.strip()] = value
    if bootstrap is not None:
        for name in _BOOTSTRAP_NAMES:
            given.pop(name, None)
        given[BOOTSTRAP] = bootstrap
    return given


def names_brokers(params: Mapping[str, Any]) -> bool:
    """Whether there is an address to ask."""
    return any(params.get(name) for name in _BOOTSTRAP_NAMES)


def read_params_file(path: Path) -> dict[str, Any]:
    """A JSON object of parameters, or a Java properties file. ConfigurationError says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not UTF-8"
        raise ConfigurationError(f"{path} cannot be read: {reason}", key="params-file", value=str(path)) from e
    if path.suffix != ".json":
        return dict(parse_properties(text))
    try:
        found = json.loads(text)
    except ValueError as e:
        raise ConfigurationError(f"{path} is not JSON: {e}", key="params-file", value=str(path)) from e
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object of Kafka parameters", key="params-file", value=str(path))
    return found


_NAME = re.compile(r"[a-z]+(\.[a-z0-9]+)+")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\n[ \t\f]*")
_ENTRY = re.compile(r"((?:\\.|[^\\\s=:])*)[ \t\f]*[=:]?[ \t\f]*(.*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def parse_properties(text: str) -> dict[str, str]:
    r"""Java's properties: `key=value`, `key: value` or `key value`, `#` and `!` comments, `\` at the end goes on, escapes."""
    found: dict[str, str] = {}
    for line in _CONTINUED.sub(r"\1", text.replace("\r\n", "\n")).split("\n"):
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        match = _ENTRY.match(line)
        assert match is not None  # both parts may be empty
        key, value = (_ESCAPE.sub(_unescaped, part) for part in match.groups())
        found[key] = value
    return found


def _unescaped(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(escape, escape)
