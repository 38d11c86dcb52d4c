"""What the user's code is, as digests: to tell at a restart whether the stored graph was made by the code that is running now.

Covered: `setup` itself – its code, defaults and what it closes over – and every user module that was loaded when the stream started, by
its file (in a zip of `--py-files`, too), constants and all. Not covered: site-packages, the standard library, kstream; files and
variables of the environment that the code reads. A wrong "changed" costs a call of `setup`; a wrong "unchanged" would run old code, so
what is in doubt counts as changed.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.util
import json
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def code_digest(setup: Callable[[], Any]) -> dict[str, str]:
    """Module name → digest of its file, for every user module loaded now, plus `setup` itself under the key ``."""
    return {"": setup_digest(setup), **modules_digest()}


def modules_digest() -> dict[str, str]:
    """Module name → digest of its file, for every user module loaded now."""
    sources = ((name, _source(getattr(module, "__spec__", None), module)) for name, module in list(sys.modules.items()))
    return {name: _digest(source) for name, source in sources if source is not None}


def changed(stored: dict[str, str], setup: Callable[[], Any]) -> str | None:
    """What differs between the stored digest and the code of now, in words; None if nothing does.

    Modules are looked up by name, so that one imported only inside `setup` is compared too.
    """
    if stored.get("") != setup_digest(setup):
        return "setup has changed"
    for name, value in stored.items():
        if name and _digest_by_name(name) != value:
            return f"module {name} has changed"
    return None


# -- modules

_OWN = {"kstream", "kstream_kafka", "pyspark_kstream", "pyspark", "py4j"}
_LIBRARY_ROOTS = [Path(sysconfig.get_path(key)).absolute() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
_LIBRARY_ROOTS.append(Path(__file__).absolute().parents[1])  # `python -m kstream.cli` is nobody's job


def _digest_by_name(name: str) -> str | None:
    if name in sys.modules:
        source = _source(getattr(sys.modules[name], "__spec__", None), sys.modules[name])
    else:
        try:
            source = _source(importlib.util.find_spec(name), None)
        except (ImportError, ValueError):
            return None
    return None if source is None else _digest(source)


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _source(spec: ModuleSpec | None, module: ModuleType | None) -> bytes | None:
    """The file of a user's module, read now; None for everybody else's and for what has no Python file."""
    file: Any = getattr(module, "__file__", None) or (None if spec is None else spec.origin)
    name: str = getattr(module, "__name__", "") or ("" if spec is None else spec.name)
    if not file or not str(file).endswith(".py") or name.split(".")[0] in _OWN:
        return None
    path = Path(file).absolute()
    if any(path.is_relative_to(root) for root in _LIBRARY_ROOTS) or "site-packages" in path.parts:
        return None
    if path.is_file():
        return path.read_bytes()
    loader: Any = None if spec is None else spec.loader  # from a zip: the file is a place in it
    try:
        return loader.get_data(str(file))
    except (AttributeError, OSError):
        return None


# -- functions

_SECRET = "secret"
_SECRET_NAME = re.compile(r"secret|passw|token|credential|jaas|pem|passphrase|assertion|(^|[._])key$", re.IGNORECASE)
_DEPTH = 6


def setup_digest(setup: Callable[[], Any]) -> str:
    """Digest of a function's code, defaults and closed-over values, stable between processes where their reprs are.

    Of an object that the function closes over and only reads attributes from, those attributes count; else all of it. A function that
    was typed into a notebook has no file that would show a change of what it calls: there the globals it reaches count, too.
    """
    if isinstance(setup, functools.partial):
        arguments = [_stable(value) for value in (*setup.args, dict(sorted(setup.keywords.items())))]
        return _digest(json.dumps([setup_digest(setup.func), arguments]).encode())
    target: Any = getattr(setup, "__func__", setup)
    if not isinstance(target, FunctionType):
        return _digest(repr(type(setup)).encode())
    image = _function(target, _DEPTH + 1)
    reached = {name: value for name, value in _globals_without_file(target).items() if name not in _OWN}
    if reached:
        image.append([[name, _SECRET if _is_secret(name) else _stable(value)] for name, value in sorted(reached.items())])
    return _digest(json.dumps(image, default=repr).encode())


def _function(target: FunctionType, depth: int) -> list[Any]:
    """Code, defaults and closed-over values of a function."""
    code = target.__code__
    values = [_stable(v, depth - 1) for v in (target.__defaults__ or ())]
    values += [[name, _stable(v, depth - 1)] for name, v in sorted((target.__kwdefaults__ or {}).items())]
    used = _attributes_used(code)
    for name, cell in zip(code.co_freevars, target.__closure__ or (), strict=False):
        try:
            value = cell.cell_contents
        except ValueError:  # empty: a function that knows itself, while it is being made
            continue
        values.append(_SECRET if _is_secret(name) else _cell(value, used.get(name), depth - 1))
    return [_code_parts(code), values]


_WRITERS = frozenset({"append", "extend", "insert", "clear", "add", "update", "discard"})
"""What a function calls on a list, set or dict that it fills and never reads: the results of a test."""


def _cell(value: Any, attributes: frozenset[str] | None, depth: int) -> Any:
    """A closed-over value, of which only `attributes` are read (None: it is used as a whole)."""
    missing = object()
    if attributes is not None and isinstance(value, (list, set, dict)) and attributes <= _WRITERS:
        return type(value).__qualname__
    if attributes is None or not hasattr(value, "__dict__") or isinstance(value, (FunctionType, type)):
        return _stable(value, depth)
    read = {name: getattr(value, name, missing) for name in sorted(attributes)}
    if any(v is missing or callable(v) for v in read.values()):  # a method may read all the rest
        return _stable(value, depth)
    return [type(value).__qualname__, _stable(read, depth)]


def _attributes_used(code: CodeType) -> dict[str, frozenset[str] | None]:
    """Closed-over name → the attributes that the function, and functions in it, read of it; None: it is used as a whole."""
    used: dict[str, set[str] | None] = {}
    for part in _codes(code):
        steps = [i for i in dis.get_instructions(part) if i.opname not in ("EXTENDED_ARG", "CACHE", "NOP")]
        for step, after in zip(steps, [*steps[1:], None], strict=True):
            if not step.opname.endswith("DEREF") or not step.opname.startswith("LOAD"):
                continue
            known = used.setdefault(step.argval, set())
            if after is not None and after.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                if known is not None:
                    known.add(after.argval)
            elif after is None or after.opname not in ("STORE_ATTR", "DELETE_ATTR"):
                used[step.argval] = None
    return {name: None if names is None else frozenset(names) for name, names in used.items()}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _globals_without_file(function: FunctionType) -> dict[str, Any]:
    """What functions that are in no file reach by global names, beginning with `function`. Empty where there is a file."""
    found: dict[str, Any] = {}
    todo = [function]
    while todo:
        current = todo.pop()
        module = sys.modules.get(current.__module__)
        if getattr(module, "__file__", None):
            continue
        for name in {name for code in _codes(current.__code__) for name in code.co_names}:
            if name in current.__globals__ and name not in found:
                found[name] = current.__globals__[name]
                todo += [found[name]] if isinstance(found[name], FunctionType) else []
        cells = [cell.cell_contents for cell in current.__closure__ or () if _filled(cell)]
        todo += [value for value in cells if isinstance(value, FunctionType) and value is not current and value not in todo]
    return found


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _code_parts(code: CodeType) -> list[Any]:
    constants = [_code_parts(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    return [code.co_name, code.co_code.hex(), constants, list(code.co_names)]


def _constant(value: Any) -> str:
    """The repr; of a set with its elements sorted, whose order differs between processes."""
    return f"frozenset({sorted(map(repr, value))})" if isinstance(value, frozenset) else repr(value)


# -- values


def _is_secret(name: object) -> bool:
    return isinstance(name, str) and bool(_SECRET_NAME.search(name))


def _stable(value: Any, depth: int = _DEPTH) -> Any:
    """A JSON-like image of a value that is the same in another process; where that cannot be had, its type.

    Objects are taken by their attributes, so that a closed-over argparse.Namespace with other values is a change; those of Spark and of
    kstream by their type. What is named like a secret counts as one, whatever it is: a stored digest is a way to try passwords, and a new
    password makes no other graph.
    """
    if isinstance(value, FunctionType):
        return _function(value, depth) if depth > 0 else _code_parts(value.__code__)
    if isinstance(value, (str, int, float, bool, bytes, type(None), Path)):
        return repr(value)
    if isinstance(value, ModuleType):
        return value.__name__
    if depth > 0 and type(value).__module__.split(".")[0] not in _OWN:
        if isinstance(value, (set, frozenset)):
            return sorted(json.dumps(_stable(v, depth - 1)) for v in value)
        if isinstance(value, (list, tuple)):
            return [_stable(v, depth - 1) for v in value]
        if isinstance(value, dict):
            return [[_stable(k, depth - 1), _SECRET if _is_secret(k) else _stable(v, depth - 1)] for k, v in value.items()]
        if isinstance(value, type):
            return [value.__qualname__, [[k, _stable(v, depth - 1)] for k, v in vars(value).items() if isinstance(v, FunctionType)]]
        if hasattr(value, "__dict__"):
            return [type(value).__qualname__, _stable(vars(value), depth - 1)]
    return type(value).__qualname__
