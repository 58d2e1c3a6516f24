"""What `dscale simulate` and `ds.simulate` can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import PLAN, Question, Real, Several, Switch, Text, Thing, Whole


class TrafficQuestion(Question):
    """A trace to describe."""

    file: Text = Text(value="FILE", place=True, offers="files")
    """A trace: Azure CSV, Mooncake JSONL, BurstGPT CSV, arrival_s,input_tokens,output_tokens, or a result of vllm
    bench, GuideLLM, AIPerf or inference-perf; .gz too."""


class SimulateQuestion(Question):
    """A fleet and its traffic; what is left out is taken from the plan file."""

    model: Thing = shared.MODEL.but()
    """A preset (llama3-70b), org/name of the Hugging Face Hub, a config.json, a folder, a GGUF or TOML file, or a
    plan that `dscale serve --save` wrote."""
    on: Thing = shared.ON.but(default="", needed=True)
    """The slice of one replica (h100:8, v5e:4x4)."""
    replicas: Whole = shared.REPLICAS.but(limits=(0, 10_000), range_flag="--autoscale")
    """How many of them (1)."""
    rate: Text = shared.RATE
    clients: Whole = Whole(None, "N", limits=(1, 1_000_000))
    """Clients that each wait for their output before they ask again, instead of a rate."""
    ramp: Text = Text("", "TIME")
    """Time over which the clients begin, one after another (0s: all at once); without it, that of one request."""
    requests: Text = Text.of(shared.REQUESTS, default="10000")
    """How many requests in all; without it more where more than 2,000 are in flight at a time."""
    prompt: Text = shared.PROMPT.but(default="")
    """Prompt tokens, on average (2048)."""
    output: Text = shared.OUTPUT.but(default="")
    """Output tokens, on average (256); 0: prompts alone, for embeddings and scores."""
    lengths: Text = shared.LENGTHS.but(value="KIND", offers=("fixed", "uniform", "varied", "lognormal"))
    """varied (outputs from half to one and a half; the default), uniform (prompts too), fixed or lognormal."""
    cv: Real = Real(1.0, "X", limits=(0.0, 100.0))
    """Coefficient of variation of lognormal lengths."""
    arrivals: Text = Text("poisson", "KIND", offers=("poisson", "gamma", "diurnal", "at-once"))
    """poisson, gamma (bursty), diurnal or at-once."""
    burst: Real = Real(2.0, "X", limits=(0.01, 100.0))
    """Coefficient of variation of the gaps of gamma arrivals."""
    swing: Real = Real(0.5, "PART", limits=(0.0, 1.0))
    """How much of the mean a diurnal rate swings by."""
    period: Text = Text("24h", "TIME")
    """The period of a diurnal rate."""
    trace: Text = Text("", "FILE", offers="files")
    """Replay a trace: Azure CSV, Mooncake JSONL, BurstGPT CSV, arrival_s,input_tokens,output_tokens, --record of run
    serve, or a result of vllm bench, GuideLLM, AIPerf or inference-perf; with --rate also ShareGPT and other lengths
    without times."""
    traffic: Text = Text("", "FILE", offers="files")
    """Classes of traffic, each with its lengths, sessions, targets and priority: a file of [[class]] tables, as `dscale
    traffic` writes it."""
    classes: Several = Several("", "NAME,KEY=VALUE", dash="--class")
    """A class in words: chat,rate=8/s,turns=3,ttft=p95:500ms; may be repeated."""
    use_case: Text = shared.USE_CASE.but()
    """Lengths, sessions, requests of a user and targets of a use case, with --users or --rate; other flags change
    them."""
    users: Whole = Whole(None, "N", limits=(1, 1_000_000_000))
    """People who use it, with --use-case."""
    speed: Real = Real(1.0, "X", limits=(1e-6, 1e6))
    """Replay a trace so many times as fast."""
    prefixes: Text = Text("", "GROUPSxTOKENS")
    """Prompts that begin alike: 100x1024,share=0.8,skew=1."""
    images: Text = Text("", "MANYxTOKENS")
    """Images of each request, and the tokens of one: 2x576,encoder=300M."""
    deadline: Text = shared.DEADLINE.but()
    """By when the last of requests that come at once shall have ended: 8h."""
    ttft: Text = shared.TTFT
    tpot: Text = shared.TPOT
    itl: Text = shared.ITL
    e2e: Text = shared.E2E
    percentile: Whole = Whole(None, "N")
    """The percentile (50, 90, 95 or 99) of targets that are plain times; the mean without it."""
    price: Text = shared.PRICE
    pricing: Text = shared.PRICING
    owned: Text = shared.OWNED
    plan: Thing = shared.SERVE_PLAN.but()
    """Its sharding and formats: tp8; tensor=8,weights=fp8,compute=fp8,kv=fp8; or a plan file."""
    prefill_on: Thing = shared.ON.but(default="", group=PLAN)
    """Disaggregate: prefill on replicas of their own, of this slice."""
    prefill_plan: Thing = shared.SERVE_PLAN.but()
    """Their sharding and formats."""
    prefill_engine: Text = shared.ENGINE.but(group=PLAN)
    """The form of the engine that they run, where it is another (sglang-ep beside sglang)."""
    prefill_replicas: Whole = shared.PREFILL_REPLICAS.but(limits=(1, 10_000), range_flag="--prefill-autoscale")
    """How many of them (1)."""
    pool: Several = Several("", "SLICE,KEY=VALUE|FILE", PLAN)
    """More replicas, of other chips, plans, engines or models: h200:4,replicas=2,plan=tp4,upto=8k,classes=chat+rag; may
    be repeated; or a file of [[pool]] tables."""
    router: Text = shared.ROUTER.but(offers=(*shared.ROUTER.offers, "session_sticky", "cache_aware", "cache_scores"))
    """round_robin, least_loaded, prefix_affinity, slo_aware, session_sticky, cache_aware (Dynamo) or cache_scores
    (llm-d)."""
    autoscale: Text = Text("", "LEAST..MOST,…", PLAN)
    """Grow and shrink: 2..16,target=24,startup=90s; by queue=4, kv=0.7, ttft=500ms or schedule=8h:16/20h:4 instead."""
    prefill_autoscale: Text = Text("", "LEAST..MOST,…", PLAN)
    """The same of the replicas that prefill."""
    fail: Text = Text("", "REPLICA@TIME", PLAN)
    """Replicas that die: 3@100s+60s, several with commas; mtbf=4h,down=10min by chance; notice=30s before."""
    queue_limit: Whole = shared.QUEUE_LIMIT.but(limits=(0, 100_000_000))
    """Requests that may queue; others are refused (0: no limit)."""
    host_cache: Text = Text("", "BYTES", PLAN)
    """Where prefixes are kept that fall out of HBM: 500GB of a replica's host memory,
    500GB,ssd=4TB@7GB/s,remote=20TB@25GB/s."""
    adapters: Text = Text("", "MANYxRANK", PLAN)
    """LoRA adapters that requests have: 100x16,slots=8,skew=1."""
    engine: Text = shared.ENGINE
    max_seqs: Whole = shared.MAX_SEQS
    token_budget: Whole = shared.TOKEN_BUDGET
    memory_fraction: Real = shared.MEMORY_FRACTION
    accept: Text = shared.ACCEPT
    drafts: Whole = shared.DRAFTS.but(default=0, limits=(0, 32))
    """Speculate: tokens drafted at a time."""
    draft: Thing = shared.DRAFT
    force: Switch = shared.FORCE
    max_rate: Switch = shared.MAX_RATE.but(default=None)
    """Find by running the largest rate that holds and the replicas for the asked one; without it, where this run
    does not hold."""
    warmup: Real = Real(0.1, "PART", limits=(0.0, 0.9))
    """The share of requests at the start that is not measured, or more of them while the fleet fills."""
    seed: Whole = shared.SEED
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
