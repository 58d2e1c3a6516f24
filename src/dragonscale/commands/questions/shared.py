"""Fields that several questions have: a docstring below one is what its help says.

`ON.but(default="")` is the same field otherwise; a docstring below that one replaces its words.

How an answer is given: the flags of all commands. They change what is printed and written, never the answer.
"""

from dragonscale.commands.questions import flag
from dragonscale.commands.questions.flag import Question, Real, Several, Switch, Text, Thing, Whole

MODEL = Thing(value="MODEL", place=True, offers="models").named("model")
"""A preset (llama3-70b), org/name of the Hugging Face Hub, a config.json, a folder, a GGUF or TOML file."""
ASSUME = Several("", "KEY=VALUE", flag.SOFTWARE)
"""A field of the model's config to take as KEY=VALUE, or KEY=ignore to leave one out; may be repeated."""
FAMILY = Text("", "FAMILY", flag.SOFTWARE, also=("--family",), dash="--as")
"""Read the model's config as this model type (llama, mixtral, deepseek_v3 …)."""
ON = Thing(value="SLICE", group=flag.WHERE, offers="slices")
"""A slice: v5p:8x16x16, h100:4096, 8xh100, v6e-256, v5p:16x20x28*4 (four pods), mychip.toml:4x4."""
SET = Several("", "NAME=VALUE", flag.WHERE)
"""What if the chip were another: hbm=1.5x, nvlink=2x, flops=2x, network=800GB/s, hbm_capacity, ici, dcn, pcie, price
…"""
PROFILE = Text("", "FILE", flag.WHERE, offers="files")
"""Kernel times of your own device: a file of `dscale calibrate`, own (of your folder, the default if it is there) or
built-in."""
PRICE = Text("", "$/H", flag.WHERE)
"""What an hour of a chip costs: 2.5/h, or h100=2.2/h,v5e=1.1/h."""
KINDS = ("on-demand", "list", "low", "high", "reserved", "1y", "3y", "spot", "owned")
PRICING = Text("", "HOW", flag.WHERE, offers=KINDS)
"""How chips are paid for, at the prices of the book (`dscale chips h100`): on-demand (without a word), list, low, high,
reserved, 1y, 3y, spot, owned."""
OWNED = Text("", "$/YEARS", flag.WHERE)
"""Chips of your own: what one costs with its share of a server, over years, and its power: 30000/4,
30k/4,0.08/kWh,pue=1.2,busy=0.9."""
BATCH = Text(value="TOKENS|SEQS")
"""Tokens of a step (4M), or sequences (512seq)."""
SEQ = Text(value="TOKENS")
"""Tokens of a sequence (8192, 32k)."""
DEADLINE = Text("", "TIME")
"""How long the whole may take."""
TOKENS = Text("", "TOKENS")
"""Tokens of the whole run (15T), or 'chinchilla' for 20 a parameter."""
MEASURED = Text("", "STEP", flag.PLAN)
"""With --plan: what was measured of it: a time (8.2s, 8.2 s/it), an MFU (38%), a rate of a chip (11k tok/s, 420
TFLOP/s) or of all (8 samples/s, 0.12 it/s). Where did the rest go?"""
LENGTHS = Text("", "FILE", offers="files")
"""How long sequences are: a file of lengths in tokens, one to a line, or how they vary."""
REQUESTS = Whole(None, "N", limits=(1, 100_000))
"""How many requests in all."""
FIND = Text("", "WORDS", group=flag.SHOW)
"""Search problems and functions by words: 'switch bytes'."""
MTBF = Text("", "TIME", flag.RUN)
"""Time between failures (3h)."""
CAPACITY = Real(0.0)
"""Expert capacity factor: tokens beyond it are dropped (0: dropless)."""
STEPS = Whole(None, "N")
"""Steps of the run."""
SEED = Whole(0, "N", limits=(0, 2**32))
"""The same seed gives the same run."""
TOP = Whole(5, "N", flag.SHOW)
"""How many of the best plans to show."""
LOG = Whole(10, "N", flag.SHOW)
"""Steps between lines on stderr; 0: none."""
TO = Several("", "TARGET", flag.SOFTWARE)
"""What to turn the answer into."""
OUT = Text("", "FILE", flag.FILES, offers="files")
"""Where to write the answer."""
LINE = Text("", "NAME", flag.SHOW)
"""One line, term, tensor or part of memory."""
SOLVE = Text("", "NAME", flag.SHOW)
"""What to solve for."""
SOURCE = Text("", "SOURCE")
"""Use one source's numbers throughout, such as 'book'."""
STACK = Text("auto", "STACK", flag.SOFTWARE, offers="stacks")
"""The software: megatron, torchtitan, maxtext, dragonscale, generic …; auto: the best people run there."""
NUMERICS = Text("", "HOW", flag.SOFTWARE, offers=("production", "benchmark"))
"""How gradients are added and reduced: production, as the software does by default (fp32 under Megatron; assumed
without a word), or benchmark, as in its published records (bf16)."""
ENGINE = Text("", "ENGINE", flag.SOFTWARE, offers="engines")
"""The software: vllm, sglang, sglang-ep, trtllm, vllm-tpu, generic …; auto: what people run there."""
DTYPE = Text("bf16", "DTYPE", flag.SOFTWARE, offers="dtypes")
"""Format of matmuls: bf16, fp8 …"""
METHOD = Text("", "METHOD", flag.TUNING, offers=("full", "lora", "qlora", "dpo", "orpo", "kto", "reward", "distill"))
"""What is trained: full (every weight, without a word), lora or qlora adapters, dpo, orpo, kto or reward models on
answers, distill from a teacher. A batch counts every answer: a chosen and a rejected one are two sequences."""
LORA_RANK = Whole(None, "RANK", flag.TUNING, limits=(1, 4096))
"""The rank of adapters (16 for lora and qlora without it); with dpo, orpo, kto, reward and distill, adapters at all."""
LORA_TARGETS = Text("", "WHAT", flag.TUNING)
"""Matmuls that get adapters: all (the default), attention, or names of modules (q_proj,v_proj)."""
FROZEN = Text("", "DTYPE", flag.TUNING, offers=("bf16", "nf4", "int8", "fp8", "fp32"))
"""Format of the frozen weights below adapters: bf16 without it, nf4 for qlora."""
ATTENTION = Text("", "KIND", flag.TUNING, offers=("flash", "sdpa", "eager"), dash="--attn-implementation")
"""Attention of the trainer: flash and sdpa are one kernel, eager writes its scores out; as the software has it for the
model without it."""
TEACHER = Thing("", "MODEL", flag.TUNING, offers="models")
"""With --method distill: the model whose logits are learnt."""
OPTIMIZER = Text("", "NAME", flag.SOFTWARE)
"""adamw (the default), adamw-8bit, paged-adamw-8bit, adamw-bf16, adafactor, muon, sgd …"""
FORCE = Switch(group=flag.SOFTWARE)
"""Judge what the software cannot run as if it could, and say so."""

PLAN = Thing("", "PLAN", flag.PLAN, offers="files")
"""A plan (tp8 pp4 dp16; fsdp=64,tensor=4,remat=block), a file of --save, or the config or command of other software."""
PROMPT = Text("2048", "TOKENS")
"""Prompt tokens (2048, 32k)."""
OUTPUT = Text("512", "TOKENS")
"""Output tokens (512)."""
TTFT = Text("", "TIME")
"""The time to first token that must be met: 500ms on average, p95:1s by 95% of requests (p50, p90, p95, p99)."""
TPOT = Text("", "TIME")
"""The time per output token of a request that must be met (30ms, p99:40ms)."""
ITL = Text("", "TIME")
"""The time between any two tokens that must be met (p99:100ms)."""
E2E = Text("", "TIME")
"""The time of a whole request that must be met (20s, p95:30s)."""
RATE = Text("", "N/S")
"""Requests that come (20/s)."""

PROMPTS = Whole(64, "N", limits=(1, 1_000_000))
"""Prompts of a step."""
USE_CASE = Text("", "NAME", offers=("chat", "rag", "code", "agent", "summarise", "batch"))
"""Lengths, requests of a user, prefixes and targets of a use case, with --users or --rate; other flags change them."""
MAX_RATE = Switch(group=flag.SHOW)
"""Find by running the largest rate that holds."""
REPLICAS = Whole(None, "N", flag.PLAN)
"""How many copies of the model."""
PREFILL_REPLICAS = Whole(None, "N", flag.PLAN)
"""Disaggregate: how many replicas prefill."""
QUEUE_LIMIT = Whole(0, "N", flag.PLAN)
"""Requests that may queue; others are refused."""
QUANTIZE = Text("", "DTYPE", flag.SOFTWARE, offers=("fp8", "int8", "int4", "nvfp4", "mxfp4", "any"))
"""Serve in a narrower format than the checkpoint's: fp8, int8, int4, nvfp4, mxfp4 or any."""
TOKENIZER = Text("", "FOLDER", offers="files")
"""The folder of tokenizer.json where it is not with the model or the weights."""
LOAD_WEIGHTS = Text("", "FOLDER", flag.FILES, offers="files")
"""A folder of Hugging Face .safetensors files to begin from; random weights without one."""
VERBOSE = Switch(group=flag.SHOW)
"""Print a line for each request."""
PROGRAM = Text("", "WHAT", flag.PLAN, offers=("train", "prefill", "decode"))
"""What runs: train, prefill or decode; told by the plan without it."""
PORT = Whole(8642, "N")
"""The port; 0: any that is free."""
HOST = Text("127.0.0.1", "ADDRESS")
"""The address to listen on; without it only this machine is heard."""
WEIGHTS = Text("", "DTYPE", flag.SOFTWARE, offers="dtypes")
"""Format of stored weights."""
COMPUTE = Text("", "DTYPE", flag.SOFTWARE, offers="dtypes")
"""Format of matmuls (fp8_block: scales by blocks)."""
KV_DTYPE = Text("", "DTYPE", flag.SOFTWARE, also=("--kv",), offers="dtypes")
"""Format of the KV cache."""
MAX_SEQS = Whole(None, "N", flag.SOFTWARE, limits=(1, 1_000_000))
"""Max sequences per DP rank (max_num_seqs); the engine's own limit without it."""
TOKEN_BUDGET = Whole(None, "TOKENS", flag.SOFTWARE, limits=(1, 10_000_000))
"""Max tokens per iteration (max_num_batched_tokens, chunked prefill); the engine's own without it."""
MEMORY_FRACTION = Real(None, "PART", flag.SOFTWARE, limits=(0.01, 1.0))
"""The part of HBM that the engine may use; its own without it."""

SERVE_PLAN = PLAN.but()
"""Judge this plan (tp8 ep8; tensor=8,expert=8; a .toml; 'vllm serve …') and no other."""
ACCEPT = Text("", "P", also=("--speculate", "--acceptance"))
"""Speculate: the probability that a drafted token is accepted (0.8), or one for each in turn (0.85,0.7,0.5); what is
published for such drafts without it."""
DRAFTS = Whole(None, "N")
"""Tokens drafted at a time (0: none); the best number without it."""
DRAFT = Thing("", "MODEL", offers="models")
"""Who drafts: a model, or eagle, mtp, mlp or ngram; the model's MTP modules or an EAGLE head without it."""
ROUTER = Text("least_loaded", "NAME", flag.PLAN, offers=("round_robin", "least_loaded", "prefix_affinity", "slo_aware"))
"""round_robin, least_loaded, prefix_affinity or slo_aware."""


class Output(Question):
    """Which of these a command takes is said in the table of commands."""

    explain: Switch = Switch(group=flag.SHOW)
    """Add every term, every part of memory and what stands behind the answer."""
    verify: Switch = Switch(group=flag.SHOW)
    """Compile the best plan with XLA and compare (see `dscale verify`)."""
    json: Switch = Switch(group=flag.SHOW)
    """Print the answer as JSON."""
    color: Text = Text("auto", "WHEN", flag.SHOW, also=("--colour",), offers=("auto", "always", "never"))
    """auto (a terminal, not a pipe), always or never."""
    width: Whole = Whole(None, "N", flag.SHOW)
    """Columns to use; as many as the terminal has without it."""
    save: Text = Text("", "FILE", flag.FILES, offers="files")
    """Write the best plan to this TOML file."""
    timeline: Text = Text("", "FILE", flag.FILES, also=("--perfetto",), offers="files")
    """Write the step as a timeline (opens in ui.perfetto.dev)."""
    plot: Text = Text("", "FILE", flag.FILES, offers="files")
    """Draw a chart: .svg, .png, .pdf, .html or .json."""
    chart: Text = Text("", "KIND", flag.FILES)
    """What --plot draws."""
    theme: Text = Text("light", "THEME", flag.FILES, offers=("light", "dark"))
    """Colours of the chart: light or dark."""
    out: Text = OUT.but()
    """Write every row to this CSV file."""
    table: Several = Several("", "FILE", flag.FILES, offers="files")
    """Write the rows to this file: .csv or .md; may be repeated."""
    html: Text = Text("", "FILE", flag.FILES, offers="files")
    """Write the answer as a page of its own."""


TABLES = (".csv", ".md")
"""How the names of tables of rows end."""
ALWAYS = ("json", "color", "width")
"""The flags of every command."""
