"""Recognises secrets by name or by value, in settings of Spark and Hadoop, and in arguments of operators.

The rule for a value. Besides URLs with a password and private keys, a word such as `password` or `token` counts in two places:

- `word=`, always.
- `word:`, where the word is the name of a field: `password: x`, `"password": "x"`. Behind `/`, `:` or `@`, and without quotes before a
  port, a path or a second colon, the word is part of an address: `hdfs://token-svc:8020`, `/opt/secrets:/opt/jars`,
  `com.acme:token-lib:1.0`. In a setting that is itself a name or a description (`spark.app.name`), `word:` is prose. Neither counts.

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


def looks_secret(name: str, value: str) -> bool:
    """Whether a setting may hold a secret: by its name, or by a password, a private key or a URL with a password in its value."""
    return bool(_NAME.search(name) or _VALUE.search(value) or (_FIELD.search(value) and not _PROSE.search(name)))
