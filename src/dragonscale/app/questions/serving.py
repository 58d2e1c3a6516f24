"""The flags that questions about serving share: what requests look like, what they must get, formats,
drafts, limits."""

from dragonscale.app.questions.flag import (
    PLAN,
    SOFTWARE,
    WORK,
    Real,
    Text,
    Thing,
    Whole,
)

PROMPT = Text("Prompt tokens (2048, 32k).", default="2048", value="TOKENS")
OUTPUT = Text("Output tokens (512).", default="512", value="TOKENS")
TTFT = Text("The time to first token that must be met (500ms).", default="", value="TIME")
TPOT = Text("The time per output token that must be met (30ms).", default="", value="TIME")
RATE = Text("Requests that come (20/s).", default="", value="N/S")

WEIGHTS = Text("Format of stored weights.", default="", value="DTYPE", group=SOFTWARE, offers="dtypes")
COMPUTE = Text(
    "Format of matmuls (fp8_block: scales by blocks).", default="", value="DTYPE", group=SOFTWARE, offers="dtypes"
)
KV_DTYPE = Text("Format of the KV cache.", default="", value="DTYPE", group=SOFTWARE, also=("--kv",), offers="dtypes")
MAX_SEQS = Whole(
    "Sequences that a data rank decodes at once, at most; the engine's own limit without it.",
    default=None,
    value="N",
    group=SOFTWARE,
)
TOKEN_BUDGET = Whole(
    "Tokens of one iteration, at most (chunked prefill); the engine's own without it.",
    default=None,
    value="TOKENS",
    group=SOFTWARE,
)
MEMORY_FRACTION = Real(
    "The part of HBM that the engine may use; its own without it.", default=None, value="PART", group=SOFTWARE
)

SERVE_PLAN = Thing(
    "Judge this plan (tp8 ep8; tensor=8,expert=8; a .toml; 'vllm serve …') and no other.",
    default="",
    value="PLAN",
    group=PLAN,
    offers="files",
)
ACCEPT = Text(
    "Speculate: the probability that a drafted token is accepted (0.8), or one for each in turn (0.85,0.7,0.5).",
    default="",
    value="P",
    group=WORK,
    also=("--speculate", "--acceptance"),
)
DRAFTS = Whole("Tokens drafted at a time; the best number without it.", default=None, value="N", group=WORK)
DRAFT = Thing(
    "The model that drafts; an EAGLE or MTP head without it.", default="", value="MODEL", group=WORK, offers="models"
)
ROUTER = Text(
    "round_robin, least_loaded, prefix_affinity or slo_aware.",
    default="least_loaded",
    value="NAME",
    group=PLAN,
    offers=("round_robin", "least_loaded", "prefix_affinity", "slo_aware"),
)
