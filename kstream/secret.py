"""What looks like a secret, by name or by value. Used for settings of Spark and Hadoop, and for arguments of operators.

Settings of Spark also go through `spark.redaction.regex` (`kstream.restore`). Kafka's parameters have a stricter rule, a list of the names
that are known to be harmless (`kstream_kafka.hiding`).
"""

from __future__ import annotations

import re

_WORDS = r"secret|passw|passphrase|access[._-]?key|account[._-]?key|private[._-]?key|api[._-]?key"
_NAME = re.compile(rf"{_WORDS}|jaas|tokens?$|credentials?$|[._-]key$", re.IGNORECASE)
_VALUE = re.compile(rf"://[^/@\s]*:[^/@\s]*@|-----BEGIN|(?:{_WORDS}|token|credentials?)[\w.-]*[\"']?\s*[=:]", re.IGNORECASE)


def looks_secret(name: str, value: str) -> bool:
    """Whether a setting may hold a secret: by its name, or by a password, a private key or a URL with a password in its value."""
    return bool(_NAME.search(name) or _VALUE.search(value))
