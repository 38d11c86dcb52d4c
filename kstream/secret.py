"""Recognises secrets by name or by value, in settings of Spark and Hadoop, and in arguments of operators.

A value is a secret if it has a URL with a password, a private key, or a word such as `password` or `token` in one of two places:

- before `=`, always.
- before `:`, if the word is the name of a field: `password: x`, `"password": "x"`. The word is no field name if it is part of an address:
  after `/`, `:` or `@`, or without quotes before a port, a path or a second colon. Examples of addresses: `hdfs://token-svc:8020`,
  `/opt/secrets:/opt/jars`, `com.acme:token-lib:1.0`. In a setting for a name or a description (`spark.app.name`), `word:` is prose and
  does not count either.

Settings of Spark also go through `spark.redaction.regex` (`kstream.context.recovery`). Kafka's parameters have a stricter rule, a list
of the names that are known to be harmless (`kstream_kafka.client.redaction`).
"""

from __future__ import annotations

import re

_WORDS = r"secret|passw|passphrase|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
_NAME = re.compile(rf"{_WORDS}|jaas|tokens?$|credentials?$|[._-]key$|(^|[._-])(pass|pwd)$", re.IGNORECASE)
_KEY = rf"(?:{_WORDS}|token|credentials?)[\w.-]*"
_QUOTES = r"[\\\"']"
_VALUE = re.compile(rf"://[^/@\s]*:[^/@\s]*@|-----BEGIN|{_KEY}{_QUOTES}*\s*=", re.IGNORECASE)
_PORT = r"\d{1,5}(?![^\s,;/])"
_FIELD = re.compile(rf"(?<![\w.:/@-])[\w.-]*{_KEY}(?:{_QUOTES}+\s*:|\s*:(?!{_PORT}|/|[\w.-]+:))", re.IGNORECASE)
_PROSE = re.compile(r"\.(name|description)$")
_LONGEST_TEXT = 500


def looks_secret(name: str, value: str) -> bool:
    """Return whether a setting may hold a secret, by its name or by its value. Pure.

    Args:
        name: the key of the setting; "" checks the value alone.
        value: the value of the setting.
    """
    return bool(_NAME.search(name) or _VALUE.search(value) or (_FIELD.search(value) and not _PROSE.search(name)))


def harmless(text: str) -> str:
    """Return the text of an error for others than the driver, in one line and cut; of one that may hold a secret only its beginning. Pure.

    Args:
        text: such as `ValueError: no record`. Of a text that may hold a secret the part before the first colon is returned, if that
            looks harmless.
    """
    line = " ".join(text.split())
    if looks_secret("", line):
        begin = line.partition(":")[0][:_LONGEST_TEXT]
        return f"{'an error' if looks_secret('', begin) else begin}: its text may hold a secret and is in the log of the driver only"
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
