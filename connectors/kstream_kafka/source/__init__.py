"""The direct stream of Spark Streaming: it plans by `planning`, its tasks read by `reader`.

direct_input_dstream    DirectKafkaInputDStream
committing_stream       its base, with the client and the commits
offset_committer        OffsetCommitter: which offsets are committed, and when
stream_spec             StreamSpec: the definition of a stream, and its recipe
earlier_letters         the dead letters of batches that run again
"""
