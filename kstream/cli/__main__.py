"""`python -m kstream.cli`: the same program as `kstream`. It also runs from a zip."""

from kstream.cli import main

main(prog_name="kstream")
