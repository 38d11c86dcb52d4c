"""What receivers have acknowledged is in a batch, whoever is killed: a source that knows what was, a job, and a campaign of kills.

python -m integration.received --kills 20
"""
