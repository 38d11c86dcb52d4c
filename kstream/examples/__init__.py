"""Examples: complete programs to run, and to start from. `python -m kstream.examples` lists them.

One idea: the examples are the programs of Spark's documentation with other import lines. Each is one file for spark-submit, and uses only
public names. No module of kstream imports them.
"""
