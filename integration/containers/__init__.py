"""The servers of the suite as containers: `pytest integration --containers`. integration/test_containers.py always uses them.

daemon      a Docker daemon: the one that answers, else, for root, one that is started and stopped
images      which images, pulled or built
container   one container of a run and the network it is on; all of a run are removed, however it ends
kafka       one node, or three, behind the classes of the processes
servers     ZooKeeper, PostgreSQL and the S3 server
spark       a master, workers and drivers
"""
