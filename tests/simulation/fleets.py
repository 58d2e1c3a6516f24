"""Fleets and traffic to draw from: small, so that everything runs out.

Step times and arrivals are multiples of a power of two, so sums of them are exact and two ways of adding them agree to
the last bit.
"""

from dataclasses import replace

from hypothesis import strategies as st

from dragonscale.simulation import (
    Autoscale,
    Brought,
    CacheTier,
    ClosedLoop,
    Failure,
    Faults,
    Fixed,
    Fleet,
    LinearTimes,
    Poisson,
    Pool,
    Prefixes,
    Replay,
    Scheduler,
    SimulatedRequest,
    SimulationOptions,
    Uniform,
)
from dragonscale.simulation.fleet import ROUTERS
from dragonscale.simulation.loop import Simulation
from dragonscale.simulation.sessions import Mixed, TrafficClass

TIERS = (
    (),
    (CacheTier(64, 1024.0),),
    (CacheTier(32, 1024.0), CacheTier(96, 256.0), CacheTier(200, 128.0, shared=True)),
    (CacheTier(64, 128.0, shared=True),),
)
EXACT = LinearTimes(2.0**-6, 2.0**-12, 2.0**-18, 2.0**-11, 2.0**-9, 2.0**-10)


def replay(requests: list[SimulatedRequest]) -> Replay:
    """Traffic of just these requests."""
    return Replay(lambda: iter(requests), len(requests))


def finished_run(fleet: Fleet, traffic, options: SimulationOptions | None = None) -> Simulation:
    """A run to the end, with its insides."""
    run = Simulation(fleet, traffic, options or SimulationOptions(keep=True))
    run.go()
    return run


engines = st.builds(
    Scheduler,
    kind=st.sampled_from(["static", "continuous", "chunked"]),
    sequences=st.integers(1, 6),
    tokens=st.integers(8, 150),
    mixed=st.sampled_from([None, True, False]),
    reserve=st.sampled_from(["prompt", "prompt", "whole"]),
    watermark=st.sampled_from([0.0, 0.01, 0.2]),
    page_tokens=st.sampled_from([1, 3, 8, 16]),
    patience_s=st.sampled_from([0.0, 0.25]),
    ahead=st.sampled_from([0, 0, 1]),
    poll=st.sampled_from([1, 1, 3]),
)
speculating = st.builds(
    Scheduler,
    kind=st.sampled_from(["continuous", "chunked"]),
    sequences=st.integers(1, 6),
    tokens=st.integers(40, 150),
    page_tokens=st.sampled_from([4, 8, 16]),
    draft=st.integers(1, 4),
    acceptance=st.floats(0, 1),
)


@st.composite
def pools(draw, scheduler=engines):
    """A pool whose caches are tiny."""
    share = draw(st.booleans())
    autoscale = st.none() | st.builds(
        Autoscale,
        least=st.integers(0, 2),
        most=st.integers(2, 4),
        target=st.sampled_from([1.0, 3.0]),
        startup_s=st.sampled_from([0.0, 0.5]),
        every_s=st.just(0.25),
        on=st.sampled_from(["requests", "queue", "kv", "ttft"]),
        hold_s=st.sampled_from([0.0, 0.5]),
        schedule=st.sampled_from([(), ((0.0, 1), (1.0, 3))]),
    )
    rule = draw(autoscale)
    fewest = 0 if rule is not None and not rule.least else 1
    return Pool(
        EXACT,
        kv_tokens=draw(st.integers(40, 400)),
        scheduler=draw(scheduler),
        replicas=draw(st.integers(fewest, 3)),
        router=draw(st.sampled_from(ROUTERS)),
        share_prefixes=share,
        tiers=draw(st.sampled_from(TIERS)) if share else (),
        autoscale=rule,
        image_s=draw(st.sampled_from([0.0, 0.125])),
        adapters=draw(st.sampled_from([0, 0, 1, 2])),
        adapter_s=0.25,
    )


@st.composite
def fleets(draw, scheduler=engines):
    """One pool, a pool that prefills beside it, or another for longer requests or a class; with failures."""
    pool = draw(pools(scheduler))
    prefill, others = None, ()
    if draw(st.sampled_from([False, False, True])):
        others = (draw(pools(scheduler)),)
        pool = replace(pool, upto=draw(st.sampled_from([0, 60])), kinds=draw(st.sampled_from([(), (0,)])))
    elif pool.scheduler.kind != "static" and draw(st.booleans()):
        fitting = engines.filter(lambda each: each.kind != "static")
        prefill = draw(pools(fitting))
    failures = []
    least = min(one.replicas for one in (pool, prefill) if one is not None)
    for _ in range(draw(st.integers(0, 2)) if least else 0):
        where = draw(st.sampled_from(["serve", "prefill"])) if prefill else "serve"
        count = prefill.replicas if where == "prefill" and prefill else pool.replicas
        at = draw(st.integers(0, 4000)) / 1024
        back = draw(st.sampled_from([0.5, 2.0, float("inf")]))
        notice = draw(st.sampled_from([0.0, 0.25]))
        failures.append(Failure(draw(st.integers(0, count - 1)), at, back, where, notice))
    faults = draw(
        st.none() | st.builds(Faults, st.sampled_from([1.0, 4.0]), st.just(0.5), st.sampled_from([0.0, 0.25]))
    )
    overhead, limit = draw(st.sampled_from([0.0, 2.0**-5])), draw(st.sampled_from([None, None, 4]))
    return Fleet(pool, prefill, tuple(failures), overhead, limit, faults=faults, others=others)


@st.composite
def open_traffic(draw):
    """Up to thirty requests, some of which begin alike."""
    times = sorted(draw(st.lists(st.integers(0, 3000), max_size=30)))
    requests = []
    for number, time in enumerate(times):
        tokens, output = draw(st.integers(1, 120)), draw(st.integers(1, 40))
        group = draw(st.integers(0, 3))
        count = -(-tokens // 16)
        blocks = tuple(group * 1000 + i for i in range(count)) if group else ()
        more = 0, 0, draw(st.integers(-1, 1)), draw(st.integers(-1, 3)), draw(st.integers(0, 2))
        requests.append(SimulatedRequest(number, time / 1024, tokens, output, blocks, 16 if blocks else 0, *more))
    return replay(requests)


BROUGHT = st.just(Brought()) | st.just(Brought(Prefixes(4, 1, 0.8), 1))
closed_traffic = st.builds(
    ClosedLoop,
    clients=st.integers(1, 8),
    requests=st.integers(0, 40),
    prompt=st.just(Uniform(1, 120)),
    output=st.just(Uniform(1, 40)),
    think_s=st.sampled_from([0.0, 0.125]),
    ramp_s=st.sampled_from([0.0, 1.0]),
    prefixes=st.none() | st.just(Prefixes(3, 40, 0.7)),
    brought=BROUGHT,
)
kinds = st.builds(
    TrafficClass,
    arrivals=st.just(Poisson(4.0)),
    prompt=st.just(Uniform(1, 60)),
    output=st.just(Uniform(1, 20)),
    turns=st.sampled_from([1.0, 3.0]),
    think_s=st.sampled_from([0.0, 0.5]),
    calls=st.sampled_from([1.0, 2.0]),
    pause_s=st.just(0.25),
    result=st.just(Fixed(30)),
    prefixes=st.none() | st.just(Prefixes(3, 70, 0.7)),
    priority=st.integers(0, 2),
    most=st.just(200),
    brought=BROUGHT,
)
mixed_traffic = st.builds(Mixed, st.tuples(kinds, kinds), st.integers(0, 40), st.sampled_from([None, 0.0, 0.5]))
