"""Exactness through kill -9: a driver is killed at every moment of a batch's life and its whole record is judged afterwards.

`job` is the driver, a plain user's job. `campaign` feeds a topic, kills and restarts the driver, and waits for the end. `verdict` reads
what every attempt left behind. `python -m integration.exactness --kills 30` starts a broker of its own and runs the lot.
"""
