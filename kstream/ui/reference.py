"""The reference of the page's JSON, as docs/page.md shows it: made from the forms themselves.

Each form has a section with its docstring and its fields. `python -m kstream.ui.reference` prints the reference, and a test compares the
page with it.
"""

from __future__ import annotations

import inspect
import re
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

from kstream.ui import forms

_BASES = {forms.BatchDetailForm: forms.BatchForm}
"""A form with its base: Python 3.10 does not know the base of a TypedDict."""
_SCALARS = {int: "number", float: "number", str: "text", bool: "true or false"}
_MANY = {int: "numbers", str: "texts", tuple: "pairs"}


def markdown_reference() -> str:
    """Return the reference as Markdown: a section for each form, in their order in the module."""
    return "\n\n".join(_section(form) for form in vars(forms).values() if is_typeddict(form))


def _section(form: Any) -> str:
    """Return the section of a form: its heading, its docstring, the fields that it does not inherit."""
    base = _BASES.get(form)
    inherited = get_type_hints(base) if base else {}
    rows = [_row(name, hint) for name, hint in get_type_hints(form, include_extras=True).items() if name not in inherited]
    table = "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])
    further = [f"It has the fields of {_link(base)}, and:"] if base else []
    return "\n\n".join([f"### {_title(form)}", inspect.cleandoc(form.__doc__ or ""), *further, table])


def _row(name: str, hint: Any) -> str:
    """Return the row of a field."""
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{name} has no meaning: declare it as Annotated[type, meaning]")
    kind, meaning = get_args(hint)
    return f"| `{name}` | {_type(kind)} | {meaning} |"


def _type(hint: Any) -> str:
    """Return a type as readers of JSON call it."""
    possible = [one for one in get_args(hint) if one is not NoneType]
    if NoneType in get_args(hint):
        return f"{_type(possible[0])} or null"
    if is_typeddict(hint):
        return _link(hint)
    if get_origin(hint) is list:
        (item,) = get_args(hint)
        return f"list of {_link(item) if is_typeddict(item) else _MANY[get_origin(item) or item]}"
    if get_origin(hint) is dict:
        return "object"
    return _SCALARS.get(hint, "text")


def _link(form: Any) -> str:
    """Return a link to the section of a form."""
    title = _title(form)
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _title(form: Any) -> str:
    """Return the name of a form as a heading, such as `Last error` of LastErrorForm."""
    return re.sub(r"(?<=[a-z])([A-Z])", lambda found: f" {found[1].lower()}", form.__name__.removesuffix("Form"))


if __name__ == "__main__":
    print(markdown_reference())
