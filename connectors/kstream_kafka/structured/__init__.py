"""The Kafka source of Structured Streaming, as a Python data source of Spark 4: `spark.readStream.format("kstream")`, and `spark.read`.

options            SourceOptions: the options of Spark's Kafka source, in one table (pure)
columns            the columns of a query: all, or those that a schema names
"""
