"""lazy_names: lets a package have names whose modules are imported at their first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kstream.errors import MissingDependencyError


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package. So who needs one file of the package does not load what the names need, such as pyspark.

    It raises AttributeError for an unknown name, and MissingDependencyError for a name that needs pyspark or pyarrow where there is none.

    Args:
        package: its name.
        homes: name → the module that has it.
    """

    def getattr_of_package(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as e:
            if e.name == "pyspark":
                raise MissingDependencyError(
                    "pyspark is not installed: pip install 'kstream-spark[spark]' (or use the pyspark of your platform)",
                    package="pyspark",
                    install="pip install 'kstream-spark[spark]'",
                ) from e
            if e.name == "pyarrow":
                install = "pip install 'kstream-spark[spark]'"
                text = f"{name} needs pyarrow, which is not installed: {install}"
                raise MissingDependencyError(text, package="pyarrow", install=install) from e
            raise

    return getattr_of_package
