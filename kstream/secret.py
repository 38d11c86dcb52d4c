"""Recognises secrets: in settings of Spark and Hadoop, in parameters of connectors, in arguments of operators, in texts of errors.

This module alone decides what may be shown and stored. It knows secrets by their names and by their form, and those that a connector was
given.

A value is a secret if it has one of these:

- a URL with a password, also one with a `/` in it; an address of HTTP with a user.
- a private key, an `Authorization` with its scheme, or the word `password` before a text in quotes.
- a name with a word such as `password` or `token`, before `=` or `:`. `pass`, `sig` and `signature` count only as a whole word.

Before `=` such a name always counts. Before `:` it counts if it is the name of a field:

- `password: x`, `"password": "x"`. `signature:` without quotes is prose.
- It is no field name if it is part of an address: after `/`, `:` or `@`, or without quotes before a port, a path or a second colon.
  Examples of addresses: `hdfs://token-svc:8020`, `/opt/secrets:/opt/jars`, `com.acme:token-lib:1.0`. In a setting for a name or a
  description (`spark.app.name`), `word:` is prose and does not count either.

All expressions take a time that is linear in the length of a text, for a text may be that of a hostile record: `re` lets no other thread of
Python run. A name is only looked for where a run of its characters begins, and what may follow it begins with another character.

Settings that are stored also go through `spark.redaction.regex`. The parameters of a connector have a stricter rule, if it lists the names
that can hold no secret. Their other values are hidden in all texts that go through `redact`, whatever the texts look like.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Mapping
from urllib.parse import unquote, urlsplit

_WORDS = r"secret|passw|passphrase|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
_NAME = re.compile(
    rf"{_WORDS}|jaas|tokens?$|credentials?$|[._-]key$|(^|[._-])(pass|pwd)$|^(authorization|cookie)$",
    re.IGNORECASE,
)
SPARKS_NAMES = r"(?i)secret|password|token|access[.]?key"
"""The default of `spark.redaction.regex`: the names of settings that Spark does not show."""
_NOT_PUBLIC = re.compile(r"-----|\n|://[^/\s]*@")
"""What no value of a parameter has that may be shown: a key in PEM form, or a URL with a user."""
_PASS = r"(?<![^\W_])pass(?![\w.-])|(?-i:(?<!by)(?<=[a-z])Pass)(?![\w.-])"
_FIELD_WORDS = rf"{_WORDS}|token|credentials?|pwd|{_PASS}"
_ALL_WORDS = rf"{_FIELD_WORDS}|(?<![^\W_])(?:sig|signature)(?![\w.-])"
_FIELD_NAME, _ANY_NAME = (rf"(?=[\w.-]*?(?:{words}))[\w.-]+" for words in (_FIELD_WORDS, _ALL_WORDS))
_QUOTES = r"[\\\"']"
_PORT = r"\d{1,5}(?![^\s,;/])"
_PLAIN = re.compile(
    r"-----BEGIN|://[^/@\s:]*:[^/@\s]*@|https?://[^/@\s]+@"
    rf"|authorization{_QUOTES}{{0,4}}\s{{0,9}}[:=]\s{{0,9}}{_QUOTES}{{0,4}}(?:basic|bearer|digest|negotiate|token)\s{{1,9}}\S"
    rf"|password\s{{1,9}}{_QUOTES}",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(rf"(?<![\w.-]){_ANY_NAME}{_QUOTES}*\s*=", re.IGNORECASE)
_FIELD = re.compile(
    rf"(?<![\w.:/@-])(?:{_ANY_NAME}{_QUOTES}+\s*:|{_FIELD_NAME}\s*:(?!{_PORT}|/|[\w.-]+:))",
    re.IGNORECASE,
)
_URL_USER = re.compile(rf"://(?!\[)[^/@\s:\"'<>]*:(?!{_PORT})")
"""The beginning of a URL up to the colon after its user. Before a port it is that of a URL with a host only."""
_PROSE = re.compile(r"\.(name|description)$")
_LONGEST_TEXT = 500
_LOOKED_AT = 2000
"""The characters of a line that are searched for secrets, the first ones. A longer line is cut: the text may be that of a hostile record,
and the time of a search depends on the length of the line."""
_URL_LOGIN = re.compile(rf"(://(?!\[)[^/@\s:\"'<>]*:)(?!{_PORT})\S*@|(https?://)[^/@\s]+@", re.IGNORECASE)
"""User and password of a URL, in a line that is not long. What the groups have may be shown."""
_LEFT_OUT = "may hold a secret and is left out"


_SIGNS = ("://", "-----begin", "authorization", "secret", "pass", "key", "token", "credential", "pwd", "sig")
"""What each of the expressions for values looks for, among others, in lower case."""


def _has_sign(text: str) -> bool:
    """Return whether an expression for values can match at all. Most texts have no sign, and to find that is much faster.

    Only for ASCII letters is the lower case the same as for expressions.
    """
    if not text.isascii():
        return True
    lower = text.lower()
    return any(sign in lower for sign in _SIGNS)


def looks_secret(name: str, value: str, also: re.Pattern[str] | None = None, public: Collection[str] | None = None) -> bool:
    """Return whether a setting, a parameter or a header may hold a secret, by its name or by its value. Pure.

    Args:
        name: its name; "" checks the value alone.
        value: its value.
        also: finds more names of secrets.
        public: the only names that can hold no secret. All others are those of secrets.
    """
    if public is not None:
        return name not in public or bool(_NOT_PUBLIC.search(value))
    if _NAME.search(name) or (also is not None and also.search(name)):
        return True
    return _has_sign(value) and _is_secret(name, value)


def _is_secret(name: str, value: str) -> bool:
    """Return whether a value has the form of a secret, by the rules at the top of this module. `name` tells whether it is prose."""
    return bool(
        _PLAIN.search(value)
        or _ASSIGNED.search(value)
        or _has_password_with_slash(value)
        or (_FIELD.search(value) and not _PROSE.search(name))
    )


def _has_password_with_slash(text: str) -> bool:
    """Return whether a text has a URL with a password that has a `/`. Pure."""
    for word in text.split():
        found = _URL_USER.search(word)
        if found and "@" in word[found.end() :]:
            return True
    return False


def harmless(text: str) -> str:
    """Return the text of an error for others than the driver, in one line and cut; of one that may hold a secret only its beginning. Pure.

    Args:
        text: such as `ValueError: no record`. Of a text that may hold a secret the part before the first colon is returned, if that
            looks harmless. Only the beginning of a long text is searched, and a quarter of that is shown at most.
    """
    line = " ".join(text.split(None, _LOOKED_AT)[:_LOOKED_AT])  # at most so many words begin among the first so many characters
    is_cut = len(line) >= _LOOKED_AT
    if looks_secret("", f"{line[: _LOOKED_AT - 1]}@" if is_cut else line):  # the password of a URL that is cut ends there
        begin = line.partition(":")[0][:_LONGEST_TEXT]
        return f"{'an error' if looks_secret('', begin) else begin}: its text {_LEFT_OUT}"
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def without_secrets(text: str) -> str:
    """Return the text of an error, which may have many lines, without what may be a secret. The other lines stay as they are.

    The password of a URL becomes `(secret)`. Of another line that may hold a secret only the beginning stays. Of a private key nothing
    stays. A line is cut after 2,000 characters.

    Args:
        text: such as a traceback.
    """
    lines: list[str] = []
    in_key = False
    for line in text.split("\n"):
        begins = "-----BEGIN" in line
        if in_key or begins:
            if begins:
                lines.append(_named(line[:_LOOKED_AT]))
            in_key = "-----END" not in line
        else:
            lines.append(_without_secret(line))
    return "\n".join(lines)


def line_without_secrets(text: str) -> str:
    """Return the text of an error in one line, without what may be a secret."""
    return without_secrets(" ".join(text.split()))


def without_logins(text: str) -> str:
    """Return a text without the passwords of URLs, for words of kstream that quote a URL. A word is cut after 2,000 characters."""
    return " ".join(_without_login(word[:_LOOKED_AT]) for word in text.split(" "))


def _without_login(line: str) -> str:
    """Return a line that is not long, with `(secret)` for the password of a URL."""
    return _URL_LOGIN.sub(lambda found: f"{found[1] or found[2]}(secret)@", line)


def _without_secret(line: str) -> str:
    """Return a line without the password of a URL; of one that may hold another secret its beginning."""
    is_cut = len(line) > _LOOKED_AT
    seen = f"{line[: _LOOKED_AT - 1]}@" if is_cut else line  # the password of a URL that is cut ends there
    if looks_secret("", _URL_LOGIN.sub("://", seen)):
        return _named(seen)
    shown = _without_login(seen)
    return f"{shown.removesuffix('@')}…" if is_cut else shown


def _named(line: str) -> str:
    """Return what stands for a line with a secret: its part before the first colon, if that is harmless, and that the rest is left out."""
    begin, colon, _ = line.partition(":")
    if not colon or len(begin) > _LONGEST_TEXT or looks_secret("", begin):
        indent = line[: len(line) - len(line.lstrip())]
        return f"{indent}a line of this text {_LEFT_OUT}"
    return f"{begin}: its text {_LEFT_OUT}"


# -- the secrets that a connector was given

REDACTED = "[hidden]"
SHORTEST = 4
"""The shortest value that is hidden, in characters. Shorter ones would hide half of each text, and no secret is so short."""
LONG = 8
"""Values of this length (in characters) or more are hidden inside of words too."""
_SHOWN = frozenset({"true", "false", "none", "hidden"})
"""Values that are never hidden: they reveal nothing, and texts need them. The last one is part of `REDACTED` itself."""
_USERINFO = re.compile(r"(?<=://)[^/@\s\"']+(?=@)")
_VALUE = re.compile(r"=([^\s,;\"']+|\"[^\"]*\")")


class _Secrets:
    """The secrets that this process was given, and one pattern that finds them all; None while there are none. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self.pattern: re.Pattern[str] | None = None

    def add(self, values: Iterable[str]) -> None:
        """Add secrets, except short values and those in _SHOWN. Values that are already known cost little."""
        new = {v for v in values if len(v) >= SHORTEST} - self._values - _SHOWN
        if new:
            with self._lock:
                self._values |= new
                longest_first = sorted(self._values, key=len, reverse=True)
                self.pattern = re.compile("|".join(map(_pattern_of, longest_first)))


def _pattern_of(value: str) -> str:
    """Return a pattern for the value. A short value matches only as a whole word: user `kafka` must not hide `kafka-1.example.org`."""
    return re.escape(value) if len(value) >= LONG else rf"(?<![\w.-]){re.escape(value)}(?![\w-]|\.\w)"


_secrets = _Secrets()


def add_secrets(parameters: Mapping[str, object], public: Collection[str]) -> None:
    """Let `redact` hide the values of these parameters from now on. Cheap for parameters that are already known. Any thread.

    Args:
        parameters: name → value. Only values that are texts are hidden.
        public: the names whose values stay as they are, unless a value itself may be a secret.
    """
    for name, value in parameters.items():
        if isinstance(value, str) and looks_secret(name, value, public=public):
            _secrets.add(_parts(value))


def add_secret(secret: str) -> None:
    """Let `redact` hide this value from now on, for example a token. Any thread."""
    _secrets.add([secret])


def redact(text: str) -> str:
    """Return the text without the secrets that were added, and without user names and passwords in URLs. Any thread."""
    if _secrets.pattern is not None:
        text = _secrets.pattern.sub(REDACTED, text)
    return _USERINFO.sub(REDACTED, text)


def _parts(value: str) -> list[str]:
    """Return the value, and its parts that a text may show alone: lines, the values of `key=value` parts, the password of a URL."""
    found = [value, *(line for line in value.splitlines() if not line.startswith("-----"))]
    found += [part.strip('"') for part in _VALUE.findall(value)]
    if "://" in value:
        try:
            password = urlsplit(value).password
        except ValueError:
            password = None
        found += [password, unquote(password)] if password else []
    return found
