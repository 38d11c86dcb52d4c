"""An extension of griffe: the section `Example:` of a docstring is Python, and the site shows it as such."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^Example:\n(?P<code>(?: {4}.*\n|\n)+)", re.MULTILINE)


def with_fences(docstring: str) -> str:
    """Return a docstring whose examples are fenced as Python."""
    return EXAMPLE.sub(lambda match: f"Example:\n    ```python\n{match['code'].rstrip()}\n    ```\n\n", docstring + "\n").rstrip("\n")


class CodeExamples(Extension):
    """Fences the examples of all docstrings, before griffe parses their sections."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Fence the examples of one object. A hook of griffe."""
        if obj.docstring is not None:
            obj.docstring.value = with_fences(obj.docstring.value)
