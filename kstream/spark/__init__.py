"""The only package that knows py4j and pyspark's internals. It implements the ports of the scheduler, the streams and the receivers.

One idea: all use of pyspark's private parts is here and nowhere else, so that a new Spark version breaks one package.
"""
