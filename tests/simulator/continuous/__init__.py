"""Continuous processing in the simulator: lives of drivers and runs of tasks under a seed, against a cluster of lists.

The product's own EpochCoordinator, EpochTask and AssignmentLog run on strands. Drivers and runs freeze between any two effects, wake up
later, and die; calls of the store and commits fail; partitions come, and the number of tasks changes. At the end nothing goes wrong any
more, one last driver reads on, and each record of the input has to be in exactly one committed epoch.

    python -m tests.simulator.continuous --lives 10000 --seed 0

    cluster   the input, the transactional ids, the receipts and what was committed
    lives     the story of one seed
    planted   bugs
"""
