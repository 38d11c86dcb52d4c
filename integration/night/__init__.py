"""Nights: one `kstream run` while what it needs goes away, one thing after the other, and the driver and the JVM are killed.

campaign         the night: records, outages, kills, the verdict
direct_night     a direct stream and a state, the checkpoint on S3; database, brokers and store go away
receiver_night   `createStream` and a write-ahead log; ZooKeeper and brokers go away
job, database    what `kstream run` runs, and where it writes
"""
