"""Commands that plan.

>>> import dragonscale as ds

>>> run = ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=200, ttft="2s", tpot="50ms")
>>> run
<SimulateReport: llama3-8b on 1 x h100:1: mean TTFT ..., mean TPOT ..., meets the targets>
>>> [row["latency"] for row in run.rows()][1:3]
['ttft_s', 'tpot_s']

>>> grid = {"serve": [{"model": "llama3-8b", "on": "h100:1", "plan": "tensor=1", "batch": [8, 16]}]}
>>> found = ds.sweep(grid, jobs=1)
>>> found
<SweepReport: 2 entries: 0 known before, 2 answered now, 0 failed>
>>> [row["batch"] for row in found.rows()]
[8, 16]

>>> served = ds.serve("llama3-8b", on="h100:1", prompt=2048, output=256, batch=32)
>>> served
<ServeReport: llama3-8b on h100:1: tp1, bf16, batch 32, TTFT ..., TPOT ..., ... tok/s/chip>
>>> served.best.meets_slo, served.best.tpot_low_s < served.best.tpot_s < served.best.tpot_high_s
(True, True)
>>> ds.serve(ds.load_model("llama3-8b"), ds.parse_slice("h100:2"), plan="tp2", batch=8).ledger.total("flops") > 0
True

>>> run = ds.train("llama3-8b", on="h100:8", batch="64seq", seq=8192, tokens="1T")
>>> run
<TrainReport: llama3-8b on h100:8: ..., ... MFU>
>>> run.best.feasible, run.best.step_low_s < run.best.step_s < run.best.step_high_s
(True, True)
>>> judged = ds.train("llama3-8b", "h100:8", batch="64seq", seq=8192, plan="tp8", alone=True)
>>> judged.plans[0].plan["tensor"], judged.ledger.total("flops") > 0
(8, True)
"""

from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion, TrafficQuestion
from dragonscale.commands.questions.train import CompareQuestion, SweepQuestion, TrainQuestion
from dragonscale.faces.command import PLANNING, command

_PLAN_FLAGS = ("explain", "verify", "save", "timeline")
"""What one can do with the best plan."""
_TRAIN_CHARTS = ("time", "memory", "mesh", "roofline", "scaling", "answer")
_SWEEP_CHARTS = ("auto", "lines", "heat", "bars")


@command(
    TrainQuestion,
    PLANNING,
    "training",
    _PLAN_FLAGS,
    _TRAIN_CHARTS,
    common=("on", "batch", "seq", "tokens", "method", "plan", "measured", "fix", "stack", "explain"),
)
def train():
    """How to split a training run over chips, how long a step takes, what bounds it, what it costs.

    dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --tokens 15T
    dscale train llama3-70b --on h100:512 --batch 4M --seq 8192 --plan "tp8 pp4 dp16" --measured 8.2s
    dscale train llama3-8b --on any --batch 1M --seq 8k --tokens 1T --deadline 30d

    Returns a `TrainReport`: `.best` is the recommended plan, `.plans` all that are shown (a given plan first),
    `.ledger` a line for each kernel and each move of the first one.

    >>> import dragonscale as ds
    >>> ds.train("llama3-8b", on="h100:8", batch="64seq", seq=8192).plot("memory")  # doctest: +SKIP
    """
    from dragonscale.commands.compare.ask_training import ask

    return ask


@command(
    ServeQuestion,
    PLANNING,
    "serving",
    _PLAN_FLAGS,
    ("frontier", "decode", "prefill", "memory", "mesh"),
    common=("on", "prompt", "output", "tpot", "rate", "batch", "max_context", "plan", "engine", "quantize", "explain"),
)
def serve():
    """How to serve a model: which chips, sharding, batch and engine; how fast tokens are, what they cost.

    dscale serve llama3-70b --on h100:8 --prompt 2048 --output 512 --ttft 500ms --tpot 30ms --rate 20/s
    dscale serve deepseek-v3 --on h200:16 --tpot 40ms --accept 0.7 --disaggregate
    dscale serve llama3-8b --on any --tpot 20ms --save plan.toml

    Returns a `ServeReport`: `.best` is the recommended configuration (None where none meets the targets), `.configs`
    all that are shown, `.frontier` those that no other beats, `.ledger` a line for each kernel, each move and each
    tensor of a decode step of the first one.

    >>> import dragonscale as ds
    >>> ds.serve("llama3-70b", on="h100:8", tpot="30ms").plot("frontier")  # doctest: +SKIP
    """
    from dragonscale.commands.serve.ask_serve import ask

    return ask


@command(
    RlQuestion,
    PLANNING,
    "reinforcement-learning",
    ("explain", "timeline"),
    common=("on", "prompts", "samples", "prompt", "output", "algorithm", "stack", "plan", "mode", "to", "explain"),
)
def rl():
    """How to run reinforcement learning: pools, plans of trainer and engine, phases of a step, what bounds it.

    dscale rl llama3-8b --on h100:64 --algorithm grpo --prompts 64 --samples 16 --prompt 512 --output 4k
    dscale rl qwen3-32b --on h200:64 --mode colocated --stack verl --mean-output 6k --output 16k --updates 4

    Returns an `RlReport`: `.best` is the recommended way (None where nothing fits), `.plans` all that are shown,
    each with its `phases`.

    >>> import dragonscale as ds
    >>> ds.rl("llama3-8b", on="h100:16", mode="colocated", stack="nemo-rl").best.phases  # doctest: +SKIP
    """
    from dragonscale.commands.rl.ask_rl import ask

    return ask


@command(TrafficQuestion, PLANNING, "simulation", ("save",))
def traffic():
    """What a trace of requests is like (lengths, rates, bursts, reuse, sessions), and a generator fitted to it.

    dscale traffic azure.csv --save traffic.toml

    Returns a `TrafficReport`: `.traffic` is the class of traffic that `ds.simulate(traffic=FILE)` reads from a file.
    """
    from dragonscale.commands.traffic import ask

    return ask


@command(
    SimulateQuestion,
    PLANNING,
    "simulation",
    ("explain", "timeline"),
    ("latency", "occupancy"),
    common=("on", "rate", "clients", "replicas", "prompt", "output", "trace", "ttft", "tpot", "plan", "max_rate"),
)
def simulate():
    """What a fleet does under traffic: percentiles of TTFT and TPOT, goodput, what it holds, what to change.

    dscale simulate llama3-70b --on h100:8 --replicas 4 --rate 12/s --ttft 500ms --tpot 40ms
    dscale simulate plan.toml --trace azure.csv --speed 2
    dscale simulate llama3-8b --on h100:1 --rate 40/s --autoscale 2..16,target=24,startup=90s

    Returns a `SimulateReport`: `.meets_slo` says whether the targets are met, `.latency` has the distributions,
    `.capacity` what was found by running where the fleet does not hold, `.rows()` a row for each latency.

    >>> import dragonscale as ds
    >>> ds.simulate("llama3-8b", on="h100:1", rate="4/s", requests=200).plot("occupancy")  # doctest: +SKIP
    """
    from dragonscale.commands.simulate.ask_simulate import ask

    return ask


@command(SweepQuestion, PLANNING, "sweep", ("explain", "table"), _SWEEP_CHARTS, tool=False)
def sweep():
    """Many questions at once, on all cores or a Ray cluster: resumable, one bad entry never stops the rest.

    dscale sweep grid.toml --out results.jsonl --table rows.csv
    dscale sweep grid.toml --out results.jsonl --retry --jobs 8
    dscale sweep grid.toml --plot sweep.svg --columns mfu,batch,seq

    A grid of questions to verify, train and serve, on all cores or on a Ray cluster: resumable, one bad entry
    never stops the rest.

    The grid is a TOML file, or the same tables as a dict of lists. Returns a `SweepReport`; `.to_frame()` has a
    row for each entry.
    """
    from dragonscale.commands.sweep.ask_sweep import ask

    return ask


@command(
    CompareQuestion,
    PLANNING,
    "compare",
    ("explain",),
    ("time", "memory"),
    common=("model", "on", "batch", "seq", "prompt", "output", "stack", "engine", "measured", "explain"),
)
def compare():
    """Plans, slices, stacks or engines side by side, difference by difference.

    dscale compare llama3-70b "tp8 pp4 dp16" fsdp512 best --on h100:512 --batch 4M --seq 8192
    dscale compare llama3-8b --on h100:64,v5p:4x4x4 --batch 4M --seq 8192
    dscale compare llama3-70b --on h100:8 --engine vllm,sglang
    """
    from dragonscale.commands.compare.ask_compare import ask

    return ask
