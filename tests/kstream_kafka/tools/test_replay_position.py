"""How far letters went back, and its stored form."""

from __future__ import annotations

import pytest
from kstream_kafka.tools.replay_position import ChosenExceptions, ReplayPosition


def test_the_bytes_of_the_metadata_and_a_commit_without_any() -> None:
    position = ReplayPosition(40, {"json.decoder.JSONDecodeError": 7, "KeyError": 50})
    assert position.encode() == '{"KeyError":50,"json.decoder.JSONDecodeError":7}'
    assert ReplayPosition.decode(40, position.encode()) == position
    assert ReplayPosition(40).encode() == "" and ReplayPosition.decode(40, "") == ReplayPosition(40)


@pytest.mark.parametrize("metadata", ["mine", "[1]", '{"KeyError":"7"}', "7"])
def test_metadata_of_another_form_is_an_error(metadata: str) -> None:
    with pytest.raises(ValueError):
        ReplayPosition.decode(40, metadata)


def test_no_offset_of_an_exception_ever_goes_back() -> None:
    position = ReplayPosition(10, {"KeyError": 20, "ValueError": 5})
    choices = ChosenExceptions(), ChosenExceptions(only=["KeyError"]), ChosenExceptions(all_but=["KeyError", "OSError"])
    for chosen in choices:
        for until in (0, 7, 15, 30):
            after = position.after(until, chosen)
            for exception in ("KeyError", "ValueError", "OSError", "another"):
                wanted = max(position.of(exception), until) if exception in chosen else position.of(exception)
                assert after.of(exception) == wanted, (chosen, until, exception)
            assert after.first <= min(after.offset, *map(after.of, ("KeyError", "ValueError", "OSError", "another")))


def test_a_replay_of_all_that_reaches_the_end_forgets_the_exceptions() -> None:
    assert ReplayPosition(10, {"KeyError": 20, "ValueError": 5}).after(30, ChosenExceptions()) == ReplayPosition(30)
