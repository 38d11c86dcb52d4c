"""Exactness while brokers die too: three nodes, the leader killed every few seconds, the driver killed in between, under full load.

`producer` is the feed, a process of its own: idempotent, acks=all, it tells at its end how much was acknowledged. `campaign` kills and
restarts; the driver is integration.exactness's, and so is the verdict: every acknowledged record in one batch, every batch one set of
ranges over all attempts, the sink equal to what was acknowledged. `python -m integration.chaos --minutes 3 --driver-kills 10`.
"""
