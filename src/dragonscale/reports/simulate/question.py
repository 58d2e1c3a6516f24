"""What `dscale simulate` can be asked. The fields are the command's flags, and what stands under each is its help.

Nothing is loaded here, so that the command line starts in a blink.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SimulateQuestion:
    """The flags as they were written; what is empty is taken from the plan file."""

    on: str = ""
    """The slice of one replica (h100:8, v5e:4x4)."""
    plan: str = ""
    """Its sharding and formats: tensor=8,weights=fp8,compute=fp8,kv=fp8, or a plan file."""
    engine: str = ""
    """The software: vllm, sglang, trtllm, vllm-tpu, generic …; auto, the default: what people run there."""
    max_seqs: int | None = None
    """Sequences that a data rank decodes at once, at most."""
    token_budget: int | None = None
    """Tokens of one iteration, at most (chunked prefill)."""
    memory_fraction: float | None = None
    """The part of HBM that the engine may use."""
    price: str = ""
    """What an hour of a chip costs: 2.5/h, or h100=2.2/h,v5e=1.1/h."""
    force: bool = False
    """Simulate a configuration that no engine runs, with a note."""
    replicas: int | None = None
    """How many of them (1)."""
    rate: str = ""
    """Requests that come, such as 40/s."""
    clients: int | None = None
    """Clients that each wait for their output before they ask again, instead of a rate."""
    ramp: str = ""
    """Time over which the clients begin, one after another (0s: all at once); without it, that of one request."""
    requests: str = "10000"
    """How many requests in all."""
    prompt: str = ""
    """Prompt tokens, on average (2048)."""
    output: str = ""
    """Output tokens, on average (256)."""
    lengths: str = ""
    """fixed, uniform (from half to one and a half), varied (outputs alone do; of --clients without it) or lognormal."""
    cv: float = 1.0
    """Coefficient of variation of lognormal lengths."""
    arrivals: str = "poisson"
    """poisson, gamma (bursty), diurnal or at-once."""
    burst: float = 2.0
    """Coefficient of variation of the gaps of gamma arrivals."""
    swing: float = 0.5
    """How much of the mean a diurnal rate swings by."""
    period: str = "24h"
    """The period of a diurnal rate."""
    trace: str = ""
    """Replay a trace: Azure CSV, Mooncake JSONL, BurstGPT CSV or arrival_s,input_tokens,output_tokens."""
    speed: float = 1.0
    """Replay a trace so many times as fast."""
    router: str = "least_loaded"
    """round_robin, least_loaded, prefix_affinity or slo_aware."""
    prefixes: str = ""
    """Prompts that begin alike: 100x1024,share=0.8,skew=1."""
    host_cache: str = ""
    """Host memory of a replica for prefixes, such as 500GB."""
    prefill_on: str = ""
    """Disaggregate: prefill on replicas of their own, of this slice."""
    prefill_plan: str = ""
    """Their sharding and formats."""
    prefill_replicas: int | None = None
    """How many of them (1)."""
    drafts: int = 0
    """Speculate: tokens drafted at a time."""
    speculate: str = ""
    """The probability that a drafted token is right (0.8), or one for each draft in turn (0.85,0.7,0.5)."""
    acceptance: str = ""
    """Another name for --speculate."""
    draft: str = ""
    """A small model that drafts; without one, the model's own extra heads."""
    autoscale: str = ""
    """Grow and shrink: 2..16,target=24,startup=90s."""
    fail: str = ""
    """Replicas that die: 3@100s+60s, several with commas."""
    queue_limit: int = 0
    """Requests that may queue; others are refused."""
    ttft: str = ""
    """Target for the first token, such as 500ms."""
    tpot: str = ""
    """Target per output token after the first, such as 30ms."""
    percentile: int = 95
    """The percentile of requests that must meet the targets: 50, 90, 95 or 99."""
    capacity: bool | None = None
    """Find by running the largest rate that holds and the replicas for the asked one; without it, where this run does not hold."""
    warmup: float = 0.1
    """The share of requests at the start that is not measured."""
    seed: int = 0
    """The same seed gives the same run."""
    chart: str = "latency"
    """What --plot draws: latency (distributions) or occupancy (over time)."""
