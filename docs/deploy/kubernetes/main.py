"""The program that spark-submit and the Spark operator run: `kstream` with the arguments behind this file. Copy it into the image."""

from kstream.cli import main

main(prog_name="kstream")
