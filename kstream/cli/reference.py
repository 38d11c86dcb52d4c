"""The reference of all commands and their options, as docs/cli.md shows it: made from the commands themselves.

Each command has a section. The options of a connection, which many commands have, are told once. `python -m kstream.cli.reference` prints
the reference, and a test compares the page with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from kstream.cli import main
from kstream.cli.inputs import connection_options, tools

_OWN_SECTIONS: dict[str, tuple[str, ...]] = {
    "Run a job": ("run", "stop", "replay"),
    "Look at a job": ("status", "page", "doctor", "lag", "checkpoint", "history", "ledger"),
    "Offsets": ("offsets",),
    "Records": ("peek", "skip"),
}
CONNECTION = "Options of a connection"


def sections() -> dict[str, list[str]]:
    """Return the commands by what they are for, as the page shows them: those of the core, then those of the connectors."""
    found = {title: list(names) for title, names in _OWN_SECTIONS.items()}
    for known in tools():
        for title, names in known.command_sections.items():
            found.setdefault(title, []).extend(names)
    return found


def markdown_reference() -> str:
    """Return the reference as Markdown: a list of all commands, the options of a connection, and each command. Imports the connectors."""
    context = click.Context(main, info_name="kstream")
    parts = [_overview(context), f"## {CONNECTION}\n\n{_table(_connection_parameters(), context)}"]
    for title, names in sections().items():
        parts.append(f"## {title}")
        parts += [_command(inner) for name in names for inner in _leaves(context, name)]
    return "\n\n".join(parts)


def _overview(context: click.Context) -> str:
    """Return a table of all commands with their first sentences."""
    rows = ["| command | |", "|---|---|"]
    for names in sections().values():
        for inner in (inner for name in names for inner in _leaves(context, name)):
            first = _help(inner.command).split("\n\n")[0]
            rows.append(f"| [`{inner.command_path}`](#{inner.command_path.replace(' ', '-')}) | {_cell(first)} |")
    return "\n".join(rows)


def _leaves(context: click.Context, name: str) -> Iterator[click.Context]:
    """Yield the context of a command; if it is a group, those of its commands, and its own if it does something by itself."""
    group = context.command
    assert isinstance(group, click.Group)
    command = group.get_command(context, name)
    assert command is not None, name
    inner = click.Context(command, info_name=name, parent=context)
    if not isinstance(command, click.Group):
        yield inner
        return
    if command.invoke_without_command:
        yield inner
    for each in command.commands:
        yield from _leaves(inner, each)


def _command(context: click.Context) -> str:
    """Return the section of one command: its heading, how it is called, its help, its options."""
    arguments = [p for p in context.command.params if isinstance(p, click.Argument)]
    options = [p for p in context.command.params if isinstance(p, click.Option)]
    common = {p.name for p in _connection_parameters()}
    has_connection = common <= {p.name for p in options}
    own = [p for p in options if not (has_connection and p.name in common)]
    usage = " ".join([context.command_path, *map(_argument, arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"### {context.command_path}", f"`{usage}`", _help(context.command)]
    if own:
        parts.append(_table(own, context))
    if has_connection:
        parts.append(f"And the [{CONNECTION.lower()}](#{CONNECTION.lower().replace(' ', '-')}).")
    return "\n\n".join(parts)


def _help(command: click.Command) -> str:
    """Return the help of a command, with its paragraphs. A `<` outside of code is escaped, because Markdown would take it for HTML."""
    spans = inspect.cleandoc(command.help or "").split("`")
    return "`".join(span if number % 2 else span.replace("<", "\\<") for number, span in enumerate(spans))


def _connection_parameters() -> list[click.Option]:
    @click.command("any")
    @connection_options
    def command() -> None:
        """Take the options of a connection."""

    return [p for p in command.params if isinstance(p, click.Option)]


def _argument(argument: click.Argument) -> str:
    """Return an argument as a line of usage shows it."""
    if argument.metavar:
        return argument.metavar
    name = (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def _table(options: Sequence[click.Option], context: click.Context) -> str:
    rows = [f"| {_names(option)} | {_default(option, context)} | {_cell(option.help or '')} |" for option in options if not option.hidden]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def _names(option: click.Option) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {_value(option)}"
    return ", ".join(f"`{_cell(name + value)}`" for name in names)


def _value(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return "N" if option.type.name.startswith(("integer", "float")) else "TEXT"


def _default(option: click.Option, context: click.Context) -> str:
    """Return the default of an option that its help shows; "required" if there must be a value."""
    if option.required:
        return "required"
    return f"`{option.get_default(context)}`" if option.show_default and not option.is_flag else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    print(markdown_reference())
