"""A file of Python for the executors, whose errors name the user's own file.

Spark copies a file into a folder of each executor that is gone tomorrow. A traceback, a dead letter and the place of a function would name
that copy. So the executors get a small module that runs the text of the user's file under its own path.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

_MODULE = '''"""Runs the text of {path}, sent by kstream."""
import linecache

_text = {text!r}
linecache.cache[{path!r}] = (len(_text), None, _text.decode("utf-8", "replace").splitlines(True), {path!r})
exec(compile(_text, {path!r}, "exec", dont_inherit=True))
'''
"""The entry of `linecache` gives tracebacks their lines; without a date of the file nobody looks for the file."""


def module_text(path: Path) -> str:
    """Return the text of a module that runs the file's present text under its path on the driver. Raises OSError."""
    return _MODULE.format(path=str(path), text=path.read_bytes())


def ship_file(sc: SparkContext, path: Path) -> None:
    """Send a `.py` file to the executors of a SparkContext, which import it by its name. Raises OSError if it cannot be read."""
    context: Any = sc
    folder = Path(tempfile.mkdtemp(dir=context._temp_dir))  # Spark removes it with the context; until then executors fetch the file
    copy = folder / path.name
    copy.write_text(module_text(path.resolve()), encoding="utf-8")
    sc.addPyFile(str(copy))
