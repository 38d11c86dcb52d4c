"""An error by which kstream refuses a call has the user's frames, and no others."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from kstream.errors import ConfigurationError
from kstream.public_call import public_call, refused, show_own_frames, was_refused

OWN = {"__name__": "kstream.somewhere", "ConfigurationError": ConfigurationError}
exec(  # frames of kstream, for the eyes of a traceback
    """
def refuse(): refuse_below()
def refuse_below(): raise ConfigurationError("it cannot work", key="k")
def break_down(): {}["a bug"]
def call(function): function()
def because_of(function):
    try:
        function()
    except Exception as e:
        raise ConfigurationError("it cannot work", key="k") from e
""",
    OWN,
)


def names(call: Callable[[], object]) -> list[str]:
    """The functions in the traceback of the error of a call."""
    with pytest.raises(Exception) as caught:
        public_call(call)()
    return [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][1:]


@pytest.fixture(autouse=True)
def as_by_default() -> Iterator[None]:
    """Without frames of kstream, whatever a command under --verbose has set in this process before."""
    show_own_frames(False)
    yield
    show_own_frames(False)


def failing() -> None:
    raise ValueError("of the user")


def test_a_refusal_has_no_frames_of_kstream() -> None:
    assert names(OWN["refuse"]) == ["wrapper"]


def test_a_bug_of_kstream_keeps_its_whole_traceback() -> None:
    assert names(OWN["break_down"]) == ["wrapper", "break_down"]


def test_frames_of_the_user_below_the_call_stay() -> None:
    def setup() -> None:
        OWN["refuse"]()

    assert names(lambda: OWN["call"](setup)) == ["wrapper", "<lambda>", "setup"]


def test_an_error_of_the_user_keeps_its_whole_traceback() -> None:
    assert names(lambda: OWN["call"](failing)) == ["wrapper", "<lambda>", "call", "failing"]


def test_the_error_that_led_to_a_refusal_stays_if_a_function_of_the_user_raised_it() -> None:
    for function, kept in ((failing, True), (OWN["break_down"], False)):
        with pytest.raises(ConfigurationError) as caught:
            public_call(OWN["because_of"])(function)
        assert (caught.value.__cause__ is not None) is kept


def test_all_frames_are_shown_on_request() -> None:
    show_own_frames(True)
    assert names(OWN["refuse"]) == ["wrapper", "refuse", "refuse_below"]


def test_a_type_error_is_a_refusal_only_if_it_is_marked() -> None:
    assert was_refused(refused(TypeError("no function"))) and not was_refused(TypeError("a bug"))
