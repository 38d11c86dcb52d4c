"""A deterministic simulator: thousands of seeded schedules of crashes, takeovers, store faults and a moving outside.

One idea: everything that decides the order of things is one random number generator. The product's own classes run unchanged – Engine,
JobGenerator, JobScheduler, PlanLog, inputs – on a runtime whose threads take turns, over a clock moved by hand, a store that fails by
the seed and an outside that a Source plays. After each schedule the invariants are checked over what jobs read and what is stored.
"""
