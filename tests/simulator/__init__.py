"""A deterministic simulator: thousands of seeded schedules of crashes, takeovers, store faults and a moving outside.

One idea: everything that decides the order of things is one random number generator. The product's own classes run unchanged – Engine,
JobGenerator, JobScheduler, PlanLog, inputs – on a runtime whose threads take turns, over a clock moved by hand, a store that fails by
the seed and an outside that a Source plays. After each schedule the invariants are checked over what jobs read and what is stored.

    from tests.simulator import simulate

    def test_my_input_survives_anything():
        simulate(MySource, schedules=1000)          # SimulationFailedError names the seed and has the trace

An input of your own: write a `Source` (source.py; `NumberSource` is a whole one) whose `make_input` returns it. It may wait for
nothing but its `Surroundings`: a real lock held across a call, a real thread or a real sleep would stop the world. A store of your own:
`simulate(store=lambda inner: MyCache(inner))` puts it between the drivers and the simulated store. A seed that failed:

    python -m tests.simulator --seed 4 --source kafka

    strands → runtime       threads that take turns, and what the product makes of them
    faults, store, host     what may go wrong; the checkpoint's store; Spark's place
    source                  the outside
    history → invariants    what happened, and what must hold of it
    driver → schedule → run one life; one seed's story; many of them
"""

from tests.simulator.errors import SimulationFailedError, SimulationStuckError
from tests.simulator.faults import NO_FAULTS, Faults
from tests.simulator.history import History
from tests.simulator.run import Outcome, Report, run_schedule, simulate
from tests.simulator.schedule import Scenario
from tests.simulator.source import NumberSource, Source, Surroundings

__all__ = [
    "NO_FAULTS",
    "Faults",
    "History",
    "NumberSource",
    "Outcome",
    "Report",
    "Scenario",
    "SimulationFailedError",
    "SimulationStuckError",
    "Source",
    "Surroundings",
    "run_schedule",
    "simulate",
]
