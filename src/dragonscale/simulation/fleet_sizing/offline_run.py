"""A benchmark with a fixed number of prompts, timed from the first to the last token: what `vllm bench`, engines' own
tables and offline jobs report. Its prompts are all there at the beginning, or come at a rate.

Its rate is the number of requests over the whole time, with the prompts before any token and with the tail in which few
requests are left. A steady state, in which another request follows each that ends, has neither.
"""

from dataclasses import dataclass, replace

from dragonscale.serving.space.disaggregation import PooledConfig
from dragonscale.serving.space.frontier import Config
from dragonscale.simulation.distributions import AtOnce, Lengths, Lognormal, Poisson
from dragonscale.simulation.fleet_sizing.fleet_job import FleetJob, FleetPool
from dragonscale.simulation.fleet_sizing.fleet_run import run_fleet
from dragonscale.simulation.fleet_sizing.fleet_traffic import LENGTH_SPANS, FleetTraffic, lengths_of
from dragonscale.simulation.fleet_sizing.short_run import SizingJob, drafts_of
from dragonscale.simulation.traffic import OpenLoop


@dataclass(frozen=True)
class OfflineRun:
    """Prompts that come together, or at a `rate`, and what becomes of them; `lengths` is their kind. Rates are of all
    replicas."""

    requests: int
    lengths: str
    replicas: int
    rate: float | None
    seconds: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    e2e_p90_s: float

    @property
    def requests_per_s(self) -> float:
        """Requests over the whole time."""
        return self.requests / self.seconds

    @property
    def total_tokens_per_s(self) -> float:
        """Tokens in and out together."""
        return self.prompt_tokens_per_s + self.output_tokens_per_s


def offline_run(
    job: SizingJob, config: Config, requests: int, lengths: str, *, replicas: int = 1, rate: float | None = None
) -> OfflineRun | None:
    """The run of so many prompts through replicas of a configuration, each launched for as many sequences at once as
    the engine takes (`--max-seqs` of the job): all at once, or at random at a rate. None of two pools, which such
    benchmarks do not have."""
    if isinstance(config, PooledConfig):
        return None
    ask = job.ask
    inputs, outputs = _lengths(job, lengths)
    traffic = FleetTraffic(
        OpenLoop(Poisson(rate) if rate else AtOnce(), requests, inputs, outputs),
        longest=(ask.prompt + ask.output) * LENGTH_SPANS[lengths],
        prompt=ask.prompt,
        output=ask.output,
        rate=rate,
    )
    limits = job.serving.limits
    replica = drafts_of(job, config).replica(job.deployment_of(config, limits), traffic.longest)
    fleet = FleetJob(FleetPool(replica, replicas), traffic, router=job.router, limits=limits, context=job.context)
    # every request counts, the first as well as the last
    result = run_fleet(replace(fleet, warmup=0.0))
    if not result.outcome.finished or not result.seconds:
        return None
    finished = result.outcome.finished
    return OfflineRun(
        requests=finished,
        lengths=lengths,
        replicas=replicas,
        rate=rate,
        seconds=result.seconds,
        prompt_tokens_per_s=result.input_tokens / result.seconds,
        output_tokens_per_s=result.output_tokens / result.seconds,
        ttft_s=result.latency["ttft_s"].mean.value,
        tpot_s=result.latency["tpot_s"].mean.value,
        e2e_s=result.latency["e2e_s"].mean.value,
        e2e_p90_s=result.latency["e2e_s"].p90.value,
    )


def _lengths(job: SizingJob, kind: str) -> tuple[Lengths, Lengths]:
    """Lengths of prompts and outputs of a kind. Mixed ones are cut so that both together fit in the model's context:
    benchmarks leave longer conversations out."""
    ask = job.ask
    inputs, outputs = lengths_of(kind, ask.prompt), lengths_of(kind, ask.output)
    if job.context and isinstance(inputs, Lognormal) and isinstance(outputs, Lognormal):
        inputs = replace(inputs, most=min(inputs.most, max(job.context // 2, ask.prompt)))
        outputs = replace(outputs, most=min(outputs.most, max(job.context - inputs.most, ask.output)))
    return inputs, outputs
