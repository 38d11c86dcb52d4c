"""schemas: values whose schemas are in a schema registry, in Confluent's framing. Needs no Spark.

registry_codec     RegistryCodec: the base of the codecs of single values
framing            the frame of a value: a zero byte and the id of its schema
avro_schema        AvroSchema: the text of a schema, and what fastavro makes of it
avro_fields        AvroFields: the fields of a record as columns
avro_empty_items   bounded_reader: a limit on items of a value that take no byte
plain_rows         a column as values of Python, for encoders
avro_rows          AvroRows: rows of a frame as Avro values
framed_values      FramedValues: the schema ids of a whole chunk
avro               AvroDeserializer, AvroSerializer: values of the records of an RDD
protobuf_schema    ProtobufSchema: a file of Protobuf, and the classes of its messages
protobuf_fields    the fields of a message as columns
protobuf_rows      ProtobufRows: rows of a frame as messages
plain_message      a message as a dict
protobuf           ProtobufDeserializer, ProtobufSerializer: values of the records of an RDD
"""
