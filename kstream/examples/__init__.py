"""Examples: whole programs to run and to begin one's own with. `python -m kstream.examples` lists them.

One idea: they are the programs of Spark's documentation, and what differs from there are the import lines. Each is one file that
spark-submit takes as it is; nothing in kstream imports them. They use public names only.
"""
