"""What `dscale simulate` and `ds.simulate` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    ENGINE,
    FAMILY,
    FORCE,
    MODEL,
    ON,
    PLAN,
    PRICE,
    PROFILE,
    SET,
    SHOW,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)
from dragonscale.app.questions.serving import (
    ACCEPT,
    DRAFT,
    DRAFTS,
    MAX_SEQS,
    MEMORY_FRACTION,
    OUTPUT,
    PROMPT,
    RATE,
    ROUTER,
    SERVE_PLAN,
    TOKEN_BUDGET,
    TPOT,
    TTFT,
)

_MODEL = (
    "A preset (llama3-70b), org/name of the Hugging Face Hub, a config.json, a folder, a GGUF or TOML file, or a plan "
    "that `dscale serve --save` wrote."
)
_PLAN = "Its sharding and formats: tp8; tensor=8,weights=fp8,compute=fp8,kv=fp8; or a plan file."


@dataclass(frozen=True)
class SimulateQuestion:
    """A fleet and its traffic; what is left out is taken from the plan file."""

    model: Thing = MODEL.but(about=_MODEL)
    on: Thing = ON.but(about="The slice of one replica (h100:8, v5e:4x4).", default="", needed=True)
    replicas: Whole = Whole("How many of them (1).", default=None, value="N", group=PLAN)
    rate: Text = RATE
    clients: Whole = Whole(
        "Clients that each wait for their output before they ask again, instead of a rate.", default=None, value="N"
    )
    ramp: Text = Text(
        "Time over which the clients begin, one after another (0s: all at once); without it, that of one request.",
        default="",
        value="TIME",
    )
    requests: Text = Text("How many requests in all.", default="10000", value="N")
    prompt: Text = PROMPT.but(about="Prompt tokens, on average (2048).", default="")
    output: Text = OUTPUT.but(about="Output tokens, on average (256).", default="")
    lengths: Text = Text(
        "varied (outputs from half to one and a half; the default), uniform (prompts too), fixed or lognormal.",
        default="",
        value="KIND",
        offers=("fixed", "uniform", "varied", "lognormal"),
    )
    cv: Real = Real("Coefficient of variation of lognormal lengths.", default=1.0, value="X")
    arrivals: Text = Text(
        "poisson, gamma (bursty), diurnal or at-once.",
        default="poisson",
        value="KIND",
        offers=("poisson", "gamma", "diurnal", "at-once"),
    )
    burst: Real = Real("Coefficient of variation of the gaps of gamma arrivals.", default=2.0, value="X")
    swing: Real = Real("How much of the mean a diurnal rate swings by.", default=0.5, value="PART")
    period: Text = Text("The period of a diurnal rate.", default="24h", value="TIME")
    trace: Text = Text(
        (
            "Replay a trace: Azure CSV, Mooncake JSONL, BurstGPT CSV, arrival_s,input_tokens,output_tokens or "
            "--record of run serve."
        ),
        default="",
        value="FILE",
        offers="files",
    )
    speed: Real = Real("Replay a trace so many times as fast.", default=1.0, value="X")
    prefixes: Text = Text("Prompts that begin alike: 100x1024,share=0.8,skew=1.", default="", value="GROUPSxTOKENS")
    ttft: Text = TTFT
    tpot: Text = TPOT
    percentile: Whole = Whole(
        "The percentile of requests that must meet the targets: 50, 90, 95 or 99.", default=95, value="N"
    )
    price: Text = PRICE
    plan: Thing = SERVE_PLAN.but(about=_PLAN)
    prefill_on: Thing = ON.but(
        about="Disaggregate: prefill on replicas of their own, of this slice.", default="", group=PLAN
    )
    prefill_plan: Thing = SERVE_PLAN.but(about="Their sharding and formats.")
    prefill_replicas: Whole = Whole("How many of them (1).", default=None, value="N", group=PLAN)
    router: Text = ROUTER
    autoscale: Text = Text(
        "Grow and shrink: 2..16,target=24,startup=90s.", default="", value="LEAST..MOST,…", group=PLAN
    )
    fail: Text = Text(
        "Replicas that die: 3@100s+60s, several with commas.", default="", value="REPLICA@TIME", group=PLAN
    )
    queue_limit: Whole = Whole(
        "Requests that may queue; others are refused (0: no limit).", default=0, value="N", group=PLAN
    )
    host_cache: Text = Text(
        "Host memory of a replica for prefixes, such as 500GB.", default="", value="BYTES", group=PLAN
    )
    engine: Text = ENGINE
    max_seqs: Whole = MAX_SEQS
    token_budget: Whole = TOKEN_BUDGET
    memory_fraction: Real = MEMORY_FRACTION
    accept: Text = ACCEPT
    drafts: Whole = DRAFTS.but(about="Speculate: tokens drafted at a time.", default=0)
    draft: Thing = DRAFT
    force: Switch = FORCE
    capacity: Switch = Switch(
        "Find by running the largest rate that holds and the replicas for the asked one; without it, where this run "
        "does not hold.",
        default=None,
        group=SHOW,
    )
    warmup: Real = Real("The share of requests at the start that is not measured.", default=0.1, value="PART")
    seed: Whole = Whole("The same seed gives the same run.", default=0, value="N")
    set: Several = SET
    profile: Text = PROFILE
    assume: Several = ASSUME
    family: Text = FAMILY
