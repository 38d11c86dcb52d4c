"""Where librdkafka's own log lines go: to a logger that is silent unless the application gives it a handler of its own.

An unreachable broker is one error of ours, not a screen of lines. Our own warnings go to `kstream.kafka` and are seen. Neither shows a
secret, whatever librdkafka's `debug` is set to.
"""

import logging

from kstream_kafka.client.redaction import HidingFilter

client_log = logging.getLogger("kstream.kafka.librdkafka")
client_log.addHandler(logging.NullHandler())
client_log.addFilter(HidingFilter())
client_log.propagate = False

logging.getLogger("kstream.kafka").addFilter(HidingFilter())
