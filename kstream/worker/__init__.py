"""What runs in a Spark worker before the function of the user does. Needs no pyspark."""
