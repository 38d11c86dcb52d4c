"""public_call: a refused call of the public API ends, in its traceback, at the line of the user that made it.

The frames of kstream below that line say nothing that the message does not. Frames of the user's own functions stay, and so does everything
after `show_own_frames`, as under `kstream run --verbose`. An error that kstream did not raise on purpose keeps its whole traceback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from kstream.errors import KStreamError
from kstream.user_code import frames_of_the_user

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Exception)
_REFUSED = "__kstream_refused__"
_shown = [False]
"""Whether the frames of kstream are shown; one for the process."""


def show_own_frames(shown: bool) -> None:
    """Set whether tracebacks of refused calls have the frames of kstream, and the errors that led to them. Any thread."""
    _shown[0] = shown


def refused(error: E) -> E:
    """Mark a TypeError or a ValueError as one that kstream raises on purpose, about an argument of the user. Return it."""
    setattr(error, _REFUSED, True)
    return error


def was_refused(error: BaseException) -> bool:
    """Return whether `refused` has marked an error."""
    return getattr(error, _REFUSED, False)


def public_call(function: F) -> F:
    """Decorate a function of the public API: an error by which kstream refuses the call ends at the caller's line."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as e:
            if end_at_the_call(e):
                raise e from e.__cause__
            raise

    return cast("F", wrapper)


def end_at_the_call(error: Exception) -> bool:
    """Cut the frames of kstream off the traceback of an error, if kstream raised it on purpose.

    The error that led to it goes, too, unless a function of the user is in its traceback.

    Returns:
        Whether it was cut. Then raise it again by `raise error from error.__cause__`.
    """
    if _shown[0] or not (isinstance(error, KStreamError) or was_refused(error)):
        return False
    error.__traceback__ = _without_own_frames(error.__traceback__)
    if error.__cause__ is not None and not list(frames_of_the_user(error.__cause__.__traceback__)):
        error.__cause__ = None
    return True


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback of the user's frames only."""
    cut: TracebackType | None = None
    for entry in reversed(list(frames_of_the_user(traceback))):
        cut = TracebackType(cut, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return cut
