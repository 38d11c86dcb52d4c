"""Where librdkafka's own log lines go: to a logger that is silent unless the application gives it a handler of its own.

An unreachable broker is one error of ours, not a screen of lines. Our own warnings go to `kstream.kafka` and are seen.
"""

import logging

client_log = logging.getLogger("kstream.kafka.librdkafka")
client_log.addHandler(logging.NullHandler())
client_log.propagate = False
