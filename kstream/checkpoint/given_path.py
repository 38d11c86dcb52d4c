"""The checkpoint that `kstream run` was given. While the job makes its context, it may neither start one nor choose another checkpoint.

`kstream run` starts the context itself, when the job has returned it. A context that the job starts would run without the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from kstream.checkpoint.settings import CHECKPOINT_DIRECTORY
from kstream.errors import ConfigurationError
from kstream.storage.open import open_store, scheme_of

_LOCAL = ("", "file")
_given: list[str] = []
"""The checkpoint while a job makes its context, for the whole process; empty otherwise."""


@contextmanager
def given_checkpoint(path: str) -> Generator[None]:
    """Refuse starts and other checkpoints during the body, on all threads of this process.

    Args:
        path: the checkpoint of the job, a path or a URL.
    """
    _given.append(path)
    try:
        yield
    finally:
        _given.remove(path)


def check_start() -> None:
    """Raise ConfigurationError if the job starts a context while it makes one for `kstream run`."""
    for path in _given:
        raise ConfigurationError(
            f"the job starts a context itself, which would run without the checkpoint {path}: remove ssc.start() and "
            "ssc.awaitTermination() from it, and return the context from setup. `kstream run` starts it",
            key="checkpoint",
            value=path,
        )


def check_directory(directory: str) -> None:
    """Raise ConfigurationError if the job of `kstream run` chooses another checkpoint. Two names of one directory are no error."""
    for path in _given:
        if _place(directory) != _place(path):
            raise ConfigurationError(
                f"the job sets the checkpoint {directory}, and `kstream run` has --checkpoint {path}: remove it from the job "
                f"(ssc.checkpoint, or {CHECKPOINT_DIRECTORY}), or give it as --checkpoint",
                key="checkpoint",
                value=directory,
            )


def _place(url: str) -> str:
    """Return one text for all names of a local directory. Of other URLs only the end and the scheme have several forms."""
    scheme = scheme_of(url)
    if scheme in _LOCAL:
        return os.path.realpath(open_store(url).url)
    _, _, rest = url.partition(":")
    return f"{'s3' if scheme == 's3a' else scheme}:{rest.rstrip('/')}"
