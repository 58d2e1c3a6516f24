"""What comes to a fleet, and how long a run of it must be: a run begins and ends with an empty fleet, which is not what
a fleet is like that has been up for long."""

from dataclasses import dataclass, field, replace

from dragonscale.errors import InputError, unknown
from dragonscale.serving.steady.targets import LatencyTarget
from dragonscale.simulation.distributions import (
    Arrivals,
    AtOnce,
    Diurnal,
    Fixed,
    Gamma,
    Lengths,
    Lognormal,
    Longer,
    Poisson,
    Uniform,
)
from dragonscale.simulation.fleet import Fleet
from dragonscale.simulation.sessions import Mixed
from dragonscale.simulation.traffic import ClosedLoop, OpenLoop, Prefixes, TrafficSource

# Requests of a run, unless more or fewer are asked for.
USUAL_REQUESTS = 10_000

# Requests of the longest run.
MAX_REQUESTS = 100_000_000

# Kinds of lengths, and how many times the mean is the longest that step times are tabulated for. Requests whose outputs
# are all equally long, and came together, end together: clients fall into step and send their next prompts at once, and
# replicas empty at once. With `varied` outputs they do not.
LENGTH_SPANS = {"fixed": 1, "uniform": 2, "varied": 2, "lognormal": 8}

# Of the requests of a run, at most so many are the last that are not measured, and half as many again the first.
MAX_SETTLING = 0.2

# Part of its time that a replica is taken to spend on prompts at most, between the tokens of other requests.
MAX_PROMPT_SHARE = 0.9

# Steps in which the requests in flight, and the seconds of each, are found from one another.
IN_FLIGHT_STEPS = 8


@dataclass(frozen=True)
class ServiceClass:
    """What one class of traffic must get, and what its tokens earn in dollars per million."""

    name: str
    priority: int = 0
    targets: dict[str, LatencyTarget] = field(default_factory=dict[str, LatencyTarget])
    """By the name of the latency."""
    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0


@dataclass(frozen=True)
class FleetTraffic:
    """Requests that come to a fleet. `longest` is the longest request that step times are tabulated for; `prompt` and
    `output` are mean tokens. `rate` is requests per second; None where requests wait for outputs or come at once."""

    source: TrafficSource
    longest: int
    prompt: int
    output: int
    rate: float | None = None
    classes: tuple[ServiceClass, ...] = ()
    shares_prefixes: bool = False
    """Whether some prompts may begin alike, so that replicas keep their blocks."""
    fixed_count: bool = True
    """Whether the number of requests was asked for; else a run may be longer."""
    fixed_ramp: bool = False
    """Whether it was asked for over which time clients begin."""
    session_share: float = 0.0
    """The part of the requests that comes in the time of the longest session."""
    repeated_share: float = 0.0
    """The part of the prompts of classes that was in an earlier prompt of the session."""
    recorded_kv_tokens: int = 0
    """Tokens of a replica's KV cache when a trace was recorded; 0 where nobody says."""
    behind_server: bool = False
    """Whether the times of a trace were taken behind the HTTP server and the tokenizer."""

    @property
    def clients(self) -> int:
        """Clients that each wait for their output; 0 where requests do not."""
        return self.source.clients if isinstance(self.source, ClosedLoop) else 0

    @property
    def at_once(self) -> bool:
        """Whether all requests are there from the beginning."""
        return isinstance(self.source, OpenLoop) and isinstance(self.source.arrivals, AtOnce)


def arrivals_of(kind: str, rate: float, burst: float = 2.0, swing: float = 0.5, period_s: float = 86400.0) -> Arrivals:
    """Arrivals of a kind at a mean rate, in requests per second."""
    if kind == "at-once":
        return AtOnce()
    if kind == "gamma":
        return Gamma(rate, burst)
    if kind == "diurnal":
        return Diurnal(rate, swing, period_s)
    return Poisson(rate)


def lengths_of(kind: str, tokens: int, spread: int = 0, cv: float = 1.0) -> Lengths:
    """Lengths of so many tokens on average, up to `spread` more and fewer where they are uniform."""
    if kind not in LENGTH_SPANS:
        raise unknown("kind of lengths called", kind, LENGTH_SPANS)
    if kind in ("uniform", "varied") and spread:
        return Uniform(max(1, tokens - spread), tokens + spread)
    if kind == "lognormal":
        return Lognormal(tokens, cv, 32 * tokens)
    return Fixed(tokens)


def varied_spread(prompt: int, output: int, context: int | None) -> int:
    """Tokens by which outputs vary: half of their mean, and less where the longest would not fit in the model's
    `context` with its prompt."""
    if not context:
        return output // 2
    return min(output // 2, max(context - prompt - output, 0))


def lengthened(lengths: Lengths, tokens: int) -> Lengths:
    """Lengths with the tokens of images."""
    return Longer(lengths, tokens) if tokens else lengths


def steady_traffic(
    prompt: int,
    output: int,
    requests: int,
    *,
    rate: float = 0.0,
    clients: int = 0,
    shared_prefix: int = 0,
    context: int | None = None,
) -> FleetTraffic:
    """Requests that are all alike but for outputs that vary: at random at a rate, or of clients that each wait for
    their output. All prompts begin with the same `shared_prefix` tokens."""
    inputs = lengths_of("fixed", prompt)
    outputs = lengths_of("varied", output, varied_spread(prompt, output, context))
    prefixes = Prefixes(1, shared_prefix) if shared_prefix else None
    source: TrafficSource
    if rate:
        source = OpenLoop(Poisson(rate), requests, inputs, outputs, prefixes)
    else:
        source = ClosedLoop(clients, requests, inputs, outputs, prefixes=prefixes)
    return FleetTraffic(
        source,
        longest=(prompt + output) * LENGTH_SPANS["varied"],
        prompt=prompt,
        output=output,
        rate=rate or None,
        shares_prefixes=bool(shared_prefix),
        fixed_count=requests != USUAL_REQUESTS,
    )


def check_requests(requests: int, text: str) -> None:
    """Refuse a number of requests that no run has."""
    if not 0 <= requests <= MAX_REQUESTS:
        raise InputError(f"--requests is {text}; a run has from 0 to {MAX_REQUESTS:,} requests.")


@dataclass(frozen=True)
class SettledTraffic:
    """Traffic of a run that is long enough to be measured, and the part of its requests that are in flight at a time:
    the first and the last of them are not measured, while the fleet fills and empties."""

    source: TrafficSource
    in_flight_share: float


def settled(traffic: FleetTraffic, fleet: Fleet) -> SettledTraffic:
    """The traffic as it comes to a fleet that has been up for long.

    Clients begin one after another over the time of one request, so that requests are in every phase at any time.
    """
    source = traffic.source
    if isinstance(source, Mixed):
        fixed_fleet = fleet.pool.autoscale is None or fleet.pool.autoscale.least > 0
        if not traffic.session_share or not source.has_rate or not fixed_fleet:
            return SettledTraffic(source, min(traffic.session_share, MAX_SETTLING))
        # Sessions are under way when the run begins, so that only batches have to fill.
        count, latency_s = requests_in_flight(traffic, fleet)
        return SettledTraffic(replace(source, call_s=latency_s), count / max(source.requests, 1))
    if not isinstance(source, OpenLoop | ClosedLoop) or traffic.fixed_ramp or traffic.at_once:
        return SettledTraffic(source, 0.0)
    count, latency_s = requests_in_flight(traffic, fleet)
    if not traffic.fixed_count:
        source = replace(source, requests=max(source.requests, round(count / MAX_SETTLING)))
    if isinstance(source, ClosedLoop):
        source = replace(source, ramp_s=latency_s)
    return SettledTraffic(source, count / max(source.requests, 1))


def requests_in_flight(traffic: FleetTraffic, fleet: Fleet) -> tuple[int, float]:
    """About how many requests there are at a time, and the seconds of one. At a rate, as many are in flight as come
    while one is served (Little's law)."""
    pool = fleet.pool
    clients = traffic.clients
    replicas = max(pool.replicas, 1)
    prefilling = fleet.prefill or pool
    new_tokens = max(round(traffic.prompt * (1 - traffic.repeated_share)), 1)
    # prompts that fill one iteration share its time
    together = min(max(prefilling.scheduler.tokens // new_tokens, 1), prefilling.scheduler.sequences)
    chunk = (new_tokens, traffic.prompt - new_tokens)
    prompt_s = prefilling.times.step(0, 0.0, [chunk] * together) / together
    rate = (traffic.rate or 0.0) / replicas
    prompt_share = 0.0
    if not (fleet.prefill or clients):  # iterations with prompts lie between the tokens of others
        prompt_share = min(rate * prompt_s, MAX_PROMPT_SHARE)
    context = traffic.prompt + traffic.output / 2
    if clients:
        batch = max(round(clients / replicas), 1)
        step_s = pool.times.step(batch, batch * context)
        # all clients of a replica send their first prompts before one of them has its output
        return clients, fleet.overhead_s + traffic.output * step_s / (1 - prompt_share) + batch * prompt_s
    batch = 1
    latency_s = 0.0
    for _ in range(IN_FLIGHT_STEPS):
        step_s = pool.times.step(batch, batch * context)
        latency_s = fleet.overhead_s + traffic.output * step_s / (1 - prompt_share) + prompt_s
        batch = min(max(round(rate * latency_s), 1), pool.scheduler.sequences)
    return batch * replicas, latency_s
