"""Code that runs in a Spark worker before the user's function. Needs no pyspark."""
