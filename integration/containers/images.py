"""The images of the suite: which they are, and how one is had. A variable of the environment names another one.

First the one that the variable names; then the public one, if it is here; then the one that was built here of the same contents; then the
public one is pulled; where that cannot be, one is built that needs no registry: of Debian's packages by mmdebstrap, and of jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

from integration.containers.container import docker
from integration.containers.daemon import NoDockerError
from integration.kafka_jars import CACHE, KAFKA, JarsMissingError, kafka_jars
from integration.system_programs import environment_of, program

ROOT = Path(__file__).resolve().parents[2]
(SCRIPT,) = (ROOT / "scripts").glob("build_*.sh")
PULL_S, BUILD_S = 60, 420
"""For how long an image is pulled, and one is built."""
JRE = "local/jre17"
"""The base of what the script builds."""
DEBIAN = "bookworm"
_RUN = "/usr/local/bin/run"
_LEFT_OUT = ("doc", "man", "locale")


class Image(NamedTuple):
    """An image by its names. `build` makes one of the same use; `contents` says what of."""

    variable: str
    public: str
    contents: Callable[[], str]
    build: Callable[[str], None]


def _of_script() -> str:
    return SCRIPT.read_text()


def _by_script(name: str) -> Callable[[str], None]:
    """The script's image gets the tag of its contents, too."""

    def build(tag: str) -> None:
        base(("openjdk-17-jre-headless", "python3"), also=JRE)
        _run([str(SCRIPT), name], f"{SCRIPT.name} {name}", {**os.environ, "PYTHON": sys.executable})
        built = {"kafka": f"local/kafka:{KAFKA}", "zookeeper": "local/zookeeper:3.9"}[name]
        _run(["docker", "tag", built, tag], "docker tag")

    return build


def _packages(packages: Sequence[str], run: str = "") -> tuple[Callable[[], str], Callable[[str], None]]:
    """Debian with these packages, and with a script that it runs, if there is one: contents and build."""
    return lambda: f"{DEBIAN} {' '.join(packages)} {run and _RUN + run}", lambda tag: _debian(tag, packages, run)


_POSTGRES_RUN = """#!/bin/sh
# Trusts every client, as the public image does by POSTGRES_HOST_AUTH_METHOD=trust. Data stay over restarts.
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/kstream
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -e $data/PG_VERSION ]; then
    install -d -o postgres -m 700 $data
    as $bin/initdb -D $data -U postgres --auth=trust -E UTF8 --locale=C --no-sync
    echo 'host all all all trust' >> $data/pg_hba.conf
fi
rm -f $data/postmaster.pid
set -- $bin/postgres -D $data -c listen_addresses='*' -c unix_socket_directories=
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
"""
IMAGES = {
    "kafka": Image("KSTREAM_KAFKA_IMAGE", f"apache/kafka:{KAFKA}", lambda: f"{_of_script()} {_jars()}", _by_script("kafka")),
    "zookeeper": Image(
        "KSTREAM_ZOOKEEPER_IMAGE", "zookeeper:3.9", lambda: f"{_of_script()} {pyspark.__version__}", _by_script("zookeeper")
    ),
    "postgres": Image("KSTREAM_POSTGRES_IMAGE", "postgres:16", *_packages(["postgresql"], _POSTGRES_RUN)),
    "spark": Image(
        "KSTREAM_SPARK_IMAGE", f"apache/spark:{pyspark.__version__}-python3", *_packages(["openjdk-17-jre-headless", "python3"])
    ),
}
"""By what they are for. Spark's has a Java and the Python of this environment; pyspark and the rest come as mounted folders."""


def image(name: str) -> str:
    """The name of an image that is here. NoDockerError if it can neither be pulled nor built in time."""
    wanted = IMAGES[name]
    given = os.environ.get(wanted.variable)
    if given:
        return given
    if here(wanted.public) and fits(name, wanted.public):
        return wanted.public
    try:
        tag = f"kstream/{name}:{hashlib.sha256(wanted.contents().encode()).hexdigest()[:12]}"
        if not here(tag):
            with _one_at_a_time():
                if not here(tag):
                    if _pulled(wanted.public) and fits(name, wanted.public):
                        return wanted.public
                    wanted.build(tag)
    except (OSError, JarsMissingError) as e:
        raise NoDockerError(f"no image of {name} can be built: {e}") from e
    if not fits(name, tag):
        raise NoDockerError(f"the Python of {tag} is not that of this environment, {_python()}; name an image in {wanted.variable}")
    return tag


def fits(name: str, found: str) -> bool:
    """Whether it can be used: that of Spark must have the Python of this environment, whose packages it is given."""
    if name != "spark":
        return True
    said = subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", "python3", found, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return said.stdout.strip() == _python()


def here(name: str) -> bool:
    client: Any = docker.from_env()
    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    finally:
        client.close()
    return True


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _jars() -> str:
    return " ".join(sorted(jar.name for jar in kafka_jars().glob("*.jar")))


_unreachable: list[str] = []
"""The first image that could not be pulled: then the others are not tried."""


def _pulled(name: str) -> bool:
    if _unreachable:
        return False
    try:
        subprocess.run(["docker", "pull", "-q", name], capture_output=True, timeout=PULL_S, check=True)
    except (subprocess.SubprocessError, OSError):
        _unreachable.append(name)
        return False
    return True


def base(packages: Sequence[str], also: str) -> None:
    """The image of these packages, under this name, too, unless there is one of that name."""
    if not here(also):
        contents = _packages(packages)[0]()
        tag = f"kstream/spark:{hashlib.sha256(contents.encode()).hexdigest()[:12]}"
        if not here(tag):
            _debian(tag, packages, "")
        _run(["docker", "tag", tag, also], "docker tag")


def _debian(tag: str, packages: Sequence[str], run: str) -> None:
    """Makes a Debian of little more than the packages. The packages of a JRE want a folder for man pages."""
    found = program("mmdebstrap")
    if found is None:
        raise NoDockerError(f"no image can be pulled, and mmdebstrap, which could make {tag}, is not there; see scripts/system-packages")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="image-", dir=CACHE) as work:
        script, tar = Path(work) / "run", Path(work) / "root.tar"
        script.write_text(run)
        script.chmod(0o755)
        command = [
            found, "--quiet", "--variant=minbase", f"--include={','.join(packages)}",
            '--essential-hook=mkdir -p "$1/usr/share/man/man1" "$1/usr/share/man/man7"',
            *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _LEFT_OUT),
            *([f'--customize-hook=cp {script} "$1{_RUN}"'] if run else []), DEBIAN, str(tar),
        ]  # fmt: skip
        _run(command, f"mmdebstrap for {tag}", environment_of(found))
        changes = ["--change", f'ENTRYPOINT ["{_RUN}"]'] if run else []
        _run(["docker", "import", *changes, str(tar), tag], "docker import")


def _run(command: Sequence[str], what: str, environment: dict[str, str] | None = None) -> None:
    """NoDockerError with the last line if it fails or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise NoDockerError(f"{what} did not end within {BUILD_S} s") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise NoDockerError(f"{what} failed: {said[-1][:300]}")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Runs beside each other build an image once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "images.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Prints all of them, built where needed: `python -m integration.containers.images`."""
    from integration.containers.daemon import running_daemon

    try:
        with running_daemon():
            for name in IMAGES:
                began = time.monotonic()
                print(f"{name}: {image(name)}, {time.monotonic() - began:.0f} s", flush=True)
    except NoDockerError as e:
        print(f"images: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
