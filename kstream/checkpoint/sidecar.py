"""The sidecar `graph`: operators as JSON beside the user's pickled functions, so that unchanged code restarts without `setup`.

Disposable: nothing about offsets depends on it. It is trusted only if its digest fits the code that is running now: `setup` itself,
the user's own modules (not site-packages, not the standard library) and the Python version.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import json
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from kstream.checkpoint import format, names
from kstream.errors import CheckpointError, StorageError
from kstream.storage import FileStore


def python_version() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def write_sidecar(store: FileStore, graph: dict[str, Any], functions: bytes, code: dict[str, str] | None) -> None:
    """Stores the graph. `code` is the digest of what it was built by, None if that is unknown (never restored then)."""
    fields = {"graph": graph, "functions": base64.b64encode(functions).decode(), "code": code, "python": python_version()}
    store.replace(names.GRAPH, format.encode("graph", fields))


def read_sidecar(store: FileStore) -> tuple[dict[str, Any], bytes, dict[str, str] | None] | str:
    """Graph, functions and code digest; or, as a string, why there is none to be had."""
    if not store.exists(names.GRAPH):
        return "no graph is stored"
    try:
        fields = format.decode("graph", store.read(names.GRAPH), store.path(names.GRAPH))
    except (CheckpointError, StorageError) as e:
        return f"the stored graph is unreadable: {e}"
    if fields["python"] != python_version():
        return f"it was stored by Python {fields['python']}, this is {python_version()}"
    return fields["graph"], base64.b64decode(fields["functions"]), fields["code"]


def code_digest(setup: Callable[[], Any]) -> dict[str, str]:
    """Module name → digest of its file, for every user module loaded now, plus `setup` itself under the key ``."""
    digest = {"": _setup_digest(setup)}
    for name, module in list(sys.modules.items()):
        path = _user_file(module)
        if path is not None:
            digest[name] = _file_digest(path)
    return digest


def changed(stored: dict[str, str], setup: Callable[[], Any]) -> str | None:
    """What differs between the stored digest and the code of now, in words; None if nothing does.

    Modules are looked up by name, so that one imported only inside `setup` is compared too.
    """
    if stored.get("") != _setup_digest(setup):
        return "setup has changed"
    for name, value in stored.items():
        if name and _digest_by_name(name) != value:
            return f"module {name} has changed"
    return None


def _digest_by_name(name: str) -> str | None:
    path: Path | None = None
    if name in sys.modules:
        path = _user_file(sys.modules[name])
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        if spec is not None and spec.origin is not None:
            path = Path(spec.origin)
    return _file_digest(path) if path is not None and path.is_file() else None


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _user_file(module: ModuleType | None) -> Path | None:
    file = getattr(module, "__file__", None)
    name = getattr(module, "__name__", "")
    if not file or not str(file).endswith(".py") or name.split(".")[0] in _OWN:
        return None
    path = Path(file).absolute()
    if not path.is_file() or any(path.is_relative_to(root) for root in _LIBRARY_ROOTS) or "site-packages" in path.parts:
        return None
    return path


_OWN = {"kstream", "kstream_kafka", "pyspark_kstream", "pyspark", "py4j"}
_LIBRARY_ROOTS = [Path(sysconfig.get_path(key)).absolute() for key in ("stdlib", "platstdlib", "purelib", "platlib")]


def _setup_digest(setup: Callable[[], Any]) -> str:
    """Digest of a function's code, defaults and closed-over values, stable between processes where their reprs are."""
    if isinstance(setup, functools.partial):
        arguments = [_stable(value) for value in (*setup.args, dict(sorted(setup.keywords.items())))]
        return hashlib.sha256(json.dumps([_setup_digest(setup.func), arguments]).encode()).hexdigest()
    target: Any = getattr(setup, "__func__", setup)
    code = getattr(target, "__code__", None)
    if not isinstance(code, CodeType):
        return hashlib.sha256(repr(type(setup)).encode()).hexdigest()
    values = [_stable(v) for v in (target.__defaults__ or ())]
    cells = zip(code.co_freevars, target.__closure__ or (), strict=False)
    values += [_SECRET if _is_secret(name) else _stable(cell.cell_contents) for name, cell in cells]
    text = json.dumps([_code_parts(code), values], default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def _code_parts(code: CodeType) -> list[Any]:
    constants = [_code_parts(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return [code.co_name, code.co_code.hex(), constants, list(code.co_names)]


def _constant(value: Any) -> str:
    """The repr; of a set with its elements sorted, whose order differs between processes."""
    return f"frozenset({sorted(map(repr, value))})" if isinstance(value, frozenset) else repr(value)


_SECRET = "secret"
_SECRET_NAME = re.compile(r"secret|passw|token|credential|jaas|pem|passphrase|assertion|(^|[._])key$", re.IGNORECASE)


def _is_secret(name: object) -> bool:
    return isinstance(name, str) and bool(_SECRET_NAME.search(name))


def _stable(value: Any, depth: int = 4) -> Any:
    """A JSON-like image of a value that is the same in another process; where that cannot be had, its type.

    Objects are taken by their attributes, so that a closed-over argparse.Namespace with other values is a change. What is named like a
    secret counts as one, whatever it is: a stored digest is a way to try passwords, and a new password makes no other graph.
    """
    if callable(value) and isinstance(getattr(value, "__code__", None), CodeType):
        return _code_parts(value.__code__)
    if isinstance(value, (str, int, float, bool, bytes, type(None), Path)):
        return repr(value)
    if depth > 0:
        if isinstance(value, (set, frozenset)):
            return sorted(json.dumps(_stable(v, depth - 1)) for v in value)
        if isinstance(value, (list, tuple)):
            return [_stable(v, depth - 1) for v in value]
        if isinstance(value, dict):
            return [[_stable(k, depth - 1), _SECRET if _is_secret(k) else _stable(v, depth - 1)] for k, v in value.items()]
        if hasattr(value, "__dict__"):
            return [type(value).__qualname__, _stable(vars(value), depth - 1)]
    return type(value).__qualname__
