"""Examples: complete programs to run, and to start from. `python -m kstream.examples` lists them.

One idea: they are the programs of Spark's documentation with other import lines. Each is one file for spark-submit and uses public names
only; nothing in kstream imports them.
"""
