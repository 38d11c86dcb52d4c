"""`kstream demo`: a real stream on an embedded broker, its driver killed in the middle, and the proof that nothing was lost.

One idea: the demo only stands outside and watches. Broker, feed and driver are processes of their own; what is shown is read from the
driver's journal and its checkpoint, and what is proved is worked out from files: the feed's list of what Kafka acknowledged, the
sink, and the record of every attempt.

    child      a process that ends with its parent
    board      what is known of each batch, from the journal                    (pure)
    proof      truth against sink, attempts and windows                         (pure)
    view       a live table, or plain lines
    stage      the parts, in the order of the play
    command    the options
"""
