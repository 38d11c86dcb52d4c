"""The stored form of a handle: JSON values, of which only the class of a handle is made again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kstream.errors import ConfigurationError, NotRecoverableError
from kstream.wal import FileBasedWriteAheadLogSegment, WriteAheadLogRecordHandle, handle_of_json, handle_to_json


@dataclass(frozen=True, slots=True)
class Sequence(WriteAheadLogRecordHandle):
    """A handle of a user's own log."""

    number: int


@dataclass(frozen=True)
class NoHandle:
    number: int


@pytest.mark.parametrize("handle", [None, FileBasedWriteAheadLogSegment("receivedData/0/log-1", 0, 9), Sequence(7)])
def test_a_handle_comes_back_from_its_stored_form(handle: WriteAheadLogRecordHandle | None) -> None:
    assert handle_of_json(handle_to_json(handle)) == handle


def test_only_the_class_of_a_handle_is_called(tmp_path: Path) -> None:
    """Whoever may write the record would else run a program of his choice in the driver."""
    touched = tmp_path / "touched"
    for name, fields in (("subprocess.Popen", {"args": ["touch", str(touched)]}), ("os.system", {"command": f"touch {touched}"})):
        with pytest.raises(NotRecoverableError, match=f"a handle of class {name}, and the class cannot be used"):
            handle_of_json({"class": name, "fields": fields})
    assert not touched.exists()


def test_a_handle_that_could_not_be_read_again_is_refused_when_it_is_stored() -> None:
    unfit: Any
    for unfit in (NoHandle(7), object()):
        with pytest.raises(ConfigurationError, match=r"no WriteAheadLogRecordHandle, so it cannot be stored: make (NoHandle|object) a"):
            handle_to_json(unfit)
