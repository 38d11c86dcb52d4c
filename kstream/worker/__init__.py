"""Code that runs in a Spark worker before the user's function. It imports no pyspark."""
