"""What a fleet of serving replicas does under traffic: discrete events, one iteration of an engine at a time.

>>> from dragonscale.simulation import ClosedLoop, Scheduler, Fleet, Fixed, LinearTimes, Pool, simulate
>>> times = LinearTimes(0.02, prompt_s=5e-5)
>>> traffic = ClosedLoop(clients=8, requests=80, prompt=Fixed(1000), output=Fixed(101))
>>> result = simulate(Fleet(Pool(times, kv_tokens=100_000, scheduler=Scheduler("chunked", tokens=8192))), traffic)
>>> result.outcome.finished, round(result.latency["ttft_s"].mean.value, 3)
(80, 0.42)
"""

from dragonscale.simulation.distributions import (
    AtOnce,
    Diurnal,
    Fixed,
    Gamma,
    Lognormal,
    Longer,
    Poisson,
    Uniform,
)
from dragonscale.simulation.fleet import Autoscale, CacheTier, Failure, Faults, Fleet, Pool, Scheduler
from dragonscale.simulation.histogram import Estimate, Histogram, Summary
from dragonscale.simulation.linear import LinearTimes
from dragonscale.simulation.perfetto import save_trace
from dragonscale.simulation.request import SimulatedRequest
from dragonscale.simulation.result import (
    Outcome,
    ReplicaUse,
    ServedRequest,
    SimulationOptions,
    SimulationResult,
    Throughput,
)
from dragonscale.simulation.sessions import Mixed, Pairs, TrafficClass
from dragonscale.simulation.simulate import simulate
from dragonscale.simulation.trace_files import read_trace, trace_format
from dragonscale.simulation.traffic import Brought, ClosedLoop, OpenLoop, Prefixes, Replay, TrafficSource

__all__ = ["AtOnce", "Autoscale", "Brought", "CacheTier", "ClosedLoop", "Diurnal", "Estimate", "Failure"]
__all__ += ["Faults", "Fixed", "Longer"]
__all__ += [
    "Fleet",
    "Gamma",
    "Histogram",
    "LinearTimes",
    "Lognormal",
    "Mixed",
    "OpenLoop",
    "Outcome",
    "Pairs",
    "Poisson",
]
__all__ += ["Pool", "Prefixes", "Replay", "ReplicaUse", "Scheduler", "ServedRequest", "SimulatedRequest"]
__all__ += ["SimulationOptions", "SimulationResult", "Summary", "Throughput", "TrafficClass", "TrafficSource"]
__all__ += ["Uniform", "read_trace", "save_trace", "simulate", "trace_format"]
