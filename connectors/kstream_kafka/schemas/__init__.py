"""schemas: values whose schemas are in a schema registry, in Confluent's framing. Needs no Spark.

framing            the frame of a value: a zero byte and the id of its schema
avro_schema        AvroSchema: the text of a schema, and what fastavro makes of it
avro               AvroDeserializer, AvroSerializer: values of the records of an RDD
"""
