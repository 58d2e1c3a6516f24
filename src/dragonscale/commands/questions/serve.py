"""What `dscale serve` and `ds.serve` can be asked."""

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.flag import (
    PLAN,
    SOFTWARE,
    Length,
    Question,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)


class ServeQuestion(Question):
    """Requests to serve: the model, the chips, the tokens; and what the answer should hold to. A plan file says what is
    left out."""

    model: Thing = shared.MODEL.but(default="", needed=True)
    on: Thing = shared.ON.but(default="", needed=True)
    """A chip (h100: all its slices), a slice (v5e:4x4), several of either (h100,v6e, or --on again), or 'any' of the
    catalogue."""
    prompt: Text = shared.PROMPT
    output: Text = shared.OUTPUT
    max_context: Length = Length("", "TOKENS")
    """The longest request that must fit, prompt and output together (32768): an engine's --max-model-len."""
    ttft: Text = shared.TTFT
    tpot: Text = shared.TPOT.but()
    """The time per output token of a request that must be met (30ms, p99:40ms); without it, --itl and --e2e 50ms: 20
    tokens/s for each user (where nothing is near that quick, twice the quickest)."""
    itl: Text = shared.ITL
    e2e: Text = shared.E2E
    rate: Text = shared.RATE.but()
    """Requests to serve (20/s): how many replicas, and what the fleet costs."""
    use_case: Text = shared.USE_CASE
    users: Whole = Whole(None, "N", limits=(1, 1_000_000_000))
    """People who use it, with --use-case."""
    max_rate: Switch = shared.MAX_RATE.but()
    """Find by running the largest rate that a replica of each of the best configurations holds under the targets; with
    --rate the replicas, their headroom and their dollars."""
    engine: Text = shared.ENGINE
    gpu_layers: Whole = Whole(None, "N", SOFTWARE, limits=(0, 100_000))
    """Layers that llama.cpp or Ollama puts on the GPUs; the CPU has the rest (-ngl)."""
    n_cpu_moe: Whole = Whole(None, "N", SOFTWARE, limits=(0, 100_000))
    """Layers whose experts llama.cpp leaves to the CPU; --cpu-moe: all."""
    weights: Text = shared.WEIGHTS
    compute: Text = shared.COMPUTE
    kv_dtype: Text = shared.KV_DTYPE
    attention: Text = Text("", "DTYPE", SOFTWARE, offers="dtypes")
    """Format of the attention's own weights where it differs."""
    dtype: Text = shared.DTYPE.but(default="")
    """Format of weights, matmuls and KV cache: bf16, fp8, int8, int4 …"""
    quantize: Text = shared.QUANTIZE
    plan: Thing = shared.SERVE_PLAN
    better: Switch = Switch(group=PLAN)
    """Say what would be better than --plan on the same chips (a plan of another software always)."""
    batch: Text = shared.BATCH.but(default="", value="SEQS", group=PLAN)
    """Sequences that decode at once; every number of them without it."""
    measured: Text = shared.MEASURED.but(value="FIGURE")
    """What was measured: 335 tok/s, 62 tok/s/user, 5.99 req/s, 26ms TPOT, 500ms TTFT, 48s for the whole run. Is it
    normal, and if not, why?"""
    requests: Whole = shared.REQUESTS.but(group=PLAN)
    """Prompts of mixed lengths that are sent at once, as offline benchmarks do: how long they take."""
    cached: Real = Real(0.0, "PART")
    """The part of each prompt that a prefix cache has already."""
    kv_split: Text = Text("", "HOW", PLAN, offers=("copy", "batch", "sequence"))
    """What a TP degree beyond the KV heads does with the KV cache: copy, batch or sequence."""
    accept: Text = shared.ACCEPT
    drafts: Whole = shared.DRAFTS
    draft: Thing = shared.DRAFT
    disaggregate: Switch = Switch(None, group=PLAN)
    """Search disaggregated prefill and decode too. Without it replicas do both, and the answer says for models of
    many experts on 16 chips or more what pools would bring; --no-disaggregate leaves that out."""
    top: Whole = shared.TOP.but(default=0)
    """How many of the best configurations to show; 0: five, or the best of each chip."""
    max_seqs: Whole = shared.MAX_SEQS
    token_budget: Whole = shared.TOKEN_BUDGET
    memory_fraction: Real = shared.MEMORY_FRACTION
    price: Text = shared.PRICE
    pricing: Text = shared.PRICING
    owned: Text = shared.OWNED
    force: Switch = shared.FORCE
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
