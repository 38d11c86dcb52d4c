"""The wheel and the sdist as `make dist` builds them, and virtual environments that have what kstream needs and no kstream."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def build_wheel(out: Path, source: Path = ROOT) -> Path:
    """Builds the wheel of a checkout, or of an sdist that is unpacked, into a folder; returns its path."""
    return _built("--wheel", "*.whl", out, source)


def build_sdist(out: Path) -> Path:
    """Builds the sdist into a folder; returns its path."""
    return _built("--sdist", "*.tar.gz", out, ROOT)


def _built(kind: str, name: str, out: Path, source: Path) -> Path:
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    (built,) = out.glob(name)
    return built


def make_venv(venv: Path) -> Path:
    """Makes a virtual environment; returns its path. A .pth adds this one's packages, whose own .pth files (and so the editable
    install) do not count there."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


def make_bare_venv(venv: Path, *distributions: str) -> Path:
    """Makes a virtual environment with these distributions of this one and nothing else, not even pip; returns its path."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    for name in distributions:
        for top in {file.parts[0] for file in metadata.files(name) or ()}:
            (site / top).symlink_to(Path(sysconfig.get_path("purelib")) / top)
    return venv


def install(venv: Path, wheel: Path) -> None:
    """Installs the wheel into the environment, without the index."""
    command = [venv / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(command, check=True)
