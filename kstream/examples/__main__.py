"""python -m kstream.examples: the list of examples, and how to run one."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kstream.examples


def examples() -> Iterator[tuple[str, str]]:
    """Yield (module name, first line of its docstring) of each example, by name. Works in a zip. Imports no example and no Spark."""
    for module in pkgutil.iter_modules(kstream.examples.__path__, "kstream.examples."):
        if not module.name.endswith("__main__"):
            finder: Any = module.module_finder
            source = finder.find_spec(module.name).loader.get_source(module.name)
            yield module.name, (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def main() -> None:
    """Print the list of examples."""
    found = list(examples())
    for name, line in found:
        print(f"{name}\n    {line}")
    print("\nTo run one (without arguments it prints its usage):")
    print(f"    python -m {found[0][0]} …")
    folder = Path(*kstream.examples.__path__)
    if folder.is_dir():  # not in a zip
        print(f"    spark-submit {folder / found[0][0].rpartition('.')[2]}.py …")


if __name__ == "__main__":
    main()
