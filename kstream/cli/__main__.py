"""`python -m kstream.cli`: the same as `kstream`, also from a zip."""

from kstream.cli import main

main(prog_name="kstream")
