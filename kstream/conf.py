"""Settings: what one is, how it is read, and the table of all of them.

A setting is a typed constant, a `ConfigEntry`. The entries of a room are in its file `settings.py`. `settings[ENTRY]` reads one, from any
object with `get(key)`, such as a SparkConf. `kstream.context.settings_table` composes the table of those of the core and of the installed
connectors. `python -m kstream.conf` prints it, for docs/settings.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Generic, Protocol, TypeVar

from kstream.errors import ConfigurationError
from kstream.nearest_name import did_you_mean, nearest_names

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
PREFIX = "spark.streaming."
"""The settings of streaming begin with it: Spark's and those of kstream."""


# -- the kinds of settings

_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*")
_TIME = re.compile(r"\s*(\d+)\s*([a-z]*)\s*")


def parse_time_ms(text: str) -> int:
    """Parse a time string of Spark (`500`, `500ms`, `10s`, `2m`, `1h`) into milliseconds. ValueError if `text` is no time."""
    match = _TIME.fullmatch(text.lower())
    if not match or match[2] not in _UNITS:
        raise ValueError(f"not a time: {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def parse_seconds(text: str) -> float:
    """Parse a time string of Spark into seconds; a number without a unit is seconds. ValueError if `text` is no time."""
    return parse_time_ms(f"{text}s" if text.strip().isdecimal() else text) / 1000


def parse_bytes(text: str) -> int:
    """Parse a size of Spark (`1048576`, `512k`, `64m`, `1g`) into bytes. ValueError if `text` is no size."""
    match = _SIZE.fullmatch(text.lower())
    if not match:
        raise ValueError(f"not a size: {text!r}")
    return int(match[1]) * 1024 ** " kmgt".index(match[2] or " ")


def parse_bool(text: str) -> bool:
    """Parse `true` or `false`, in any case. ValueError if it is neither."""
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError(f"neither true nor false: {text!r}")
    return value


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T_co]):
    """How the text of a setting is read.

    Attributes:
        name: the word for it in docs/settings.md.
        parse: returns the value of a text. ValueError if the text has none.
    """

    name: str
    parse: Callable[[str], T_co]


BOOL: SettingKind[bool] = SettingKind("bool", parse_bool)
INT: SettingKind[int] = SettingKind("int", int)
FLOAT: SettingKind[float] = SettingKind("float", float)
MILLISECONDS: SettingKind[int] = SettingKind("ms", parse_time_ms)
"""A time such as `10s`. A number without a unit is milliseconds."""
SECONDS: SettingKind[float] = SettingKind("s", parse_seconds)
"""A time such as `10s`. A number without a unit is seconds."""
BYTES: SettingKind[int] = SettingKind("bytes", parse_bytes)
"""A size such as `64m`."""
STR: SettingKind[str] = SettingKind("str", str)


# -- a setting, and how it is read


@dataclass(frozen=True, slots=True)
class ConfigEntry(Generic[T_co]):
    """A setting whose value is a `T_co`. Its `str` is its key.

    `value_of` refuses a number below `least`, and if there are `words` any other word.
    """

    key: str
    kind: SettingKind[T_co]
    default: T_co
    meaning: str
    least: int | None = None
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.key

    def value_of(self, text: str | None) -> T_co:
        """Return the value of a text; the default for None. ConfigurationError if the text cannot be read, or has no meaning."""
        if text is None:
            return self.default
        try:
            value = self.kind.parse(text)
        except ValueError as e:
            raise ConfigurationError(
                f"{self.key} is {text!r}, which is not a {self.kind.name}: {self.meaning}", key=self.key, value=text
            ) from e
        if self.least is not None and isinstance(value, int) and value < self.least:
            raise ConfigurationError(f"{self.key} is {text}; it must be at least {self.least}", key=self.key, value=text)
        if self.words and value not in self.words:
            raise ConfigurationError(f"{self.key} is {text!r}; it must be one of {', '.join(self.words)}", key=self.key, value=text)
        return value


class ConfSource(Protocol):
    """A source of settings as text, such as pyspark's SparkConf."""

    def get(self, key: str, /) -> str | None:
        """Return the text of a setting; None if it is not set."""
        ...


class Settings:
    """Typed view of a configuration.

    Args:
        source: the configuration.
        values: a copy of all its settings, which is read in place of the source: a SparkConf calls the JVM for each key. Later changes
            of the source then have no effect.
    """

    def __init__(self, source: ConfSource, values: Mapping[str, str] | None = None) -> None:
        self.source = source
        self._values = source if values is None else values
        self._overrides: dict[str, str] = {}

    def override(self, entry: ConfigEntry[object], value: str) -> None:
        """Set the text of a setting, for options of commands. From now on it wins over the source, unless it is empty."""
        self._overrides[entry.key] = value

    def __getitem__(self, entry: ConfigEntry[T]) -> T:
        """Return the value of a setting; its default if it is not set. ConfigurationError if its text cannot be read."""
        return entry.value_of(self._overrides.get(entry.key) or self._values.get(entry.key))


def text_of(value: object) -> str:
    """Return the value of a setting as one writes it in a SparkConf; "" for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# -- all settings


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """Settings in the groups and the order of docs/settings.md. Immutable.

    Attributes:
        groups: the entries by the name of their group.
        without_effect: settings that Spark reads and kstream does not → the setting to use instead; "" if there is none.
    """

    groups: Mapping[str, Sequence[ConfigEntry[object]]]
    without_effect: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def entries(self) -> Sequence[ConfigEntry[object]]:
        return [entry for entries in self.groups.values() for entry in entries]

    def with_connector(self, theirs: SettingsTable) -> SettingsTable:
        """Return the table with the settings of a connector.

        In a group that both have, the connector's come first. A group of its own stands before the next of its groups that is here, or at
        the end.
        """
        order = list(self.groups)
        before = len(order)
        for name in reversed(list(theirs.groups)):
            if name in self.groups:
                before = order.index(name)
            else:
                order.insert(before, name)
        groups = {name: (*theirs.groups.get(name, ()), *self.groups.get(name, ())) for name in order}
        return SettingsTable(groups, {**self.without_effect, **theirs.without_effect})

    def check(self, values: Mapping[str, str]) -> list[str]:
        """Check all settings of streaming that are set, also those that nobody reads. The values of unknown ones are in no message.

        Args:
            values: all settings of an application.

        Returns:
            Warnings: settings that have no effect, and unknown ones with the nearest name.

        Raises:
            ConfigurationError: a value cannot be read.
        """
        known = {entry.key: entry for entry in self.entries}
        ours = sorted(key for key in values if key.startswith(PREFIX))
        for key in ours:
            if key in known:
                known[key].value_of(values[key])
        dead = [key for key in ours if key in self.without_effect]
        unknown = [key for key in ours if key not in known and key not in self.without_effect]
        return [*([self._told_of_dead(dead)] if dead else []), *(_told_of_unknown(key, known) for key in unknown)]

    def _told_of_dead(self, keys: Sequence[str]) -> str:
        """Return the warning about settings of Spark without effect."""
        instead = self.without_effect
        named = ", ".join(f"{key} (use {instead[key]})" if instead[key] else key for key in keys)
        return f"settings of Spark that have no effect in kstream: {named}"

    def markdown(self) -> str:
        """Return the tables of docs/settings.md, one for each group."""
        return "\n\n".join(f"## {name}\n\n{_markdown_of(entries)}" for name, entries in self.groups.items())


def _told_of_unknown(key: str, known: Mapping[str, object]) -> str:
    """Return the warning about a setting that neither Spark nor kstream has."""
    names = {_without_prefix(other): other for other in known}
    hint = did_you_mean([names[name] for name in nearest_names(_without_prefix(key), names)])
    return f"setting {key} is unknown and has no effect. {hint or '`python -m kstream.conf` lists the settings.'}"


def _without_prefix(key: str) -> str:
    """Return the part of a key by which it is compared: what all keys have in common makes them no more alike."""
    return key.removeprefix(PREFIX).removeprefix("kstream.")


def _markdown_of(entries: Sequence[ConfigEntry[object]]) -> str:
    """Return the table of some settings."""
    rows = [f"| `{e.key}` | {e.kind.name} | {text_of(e.default)} | {e.meaning} |" for e in entries]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


if __name__ == "__main__":
    print(import_module("kstream.context.settings_table").settings_table().markdown())  # by its name: that room is above this one
