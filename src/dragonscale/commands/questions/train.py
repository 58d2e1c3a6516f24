"""What `dscale train`, `sweep` and `compare` and their functions can be asked."""

from dragonscale.commands.questions import flag, shared
from dragonscale.commands.questions.flag import Items, Question, Real, Several, Switch, Text, Thing, Whole


class TrainQuestion(Question):
    """A training run: the model, the chips, the batch; and what the answer should hold to. A plan file says what is
    left out."""

    model: Thing = shared.MODEL.but(default="", needed=True)
    on: Thing = shared.ON.but(default="", needed=True)
    """A slice (v5p:8x16x16, h100:4096), or several (h100:64,v5p:4x4x8, or --on again). A chip alone (h100) asks for
    the fewest of them; 'any' for the cheapest slice of the catalogue."""
    batch: Text = shared.BATCH.but(default="")
    """Tokens of a step (4M), or sequences (512seq); 64Ki tokens a chip, up to 4Mi, without it."""
    seq: Text = shared.SEQ.but(default="")
    """Tokens of a sequence (8192, 32k); the model's context, up to 8192, without it."""
    tokens: Text = shared.TOKENS.but()
    """Tokens of the whole run (15T), its steps (1000steps), or 'chinchilla' for 20 a parameter."""
    documents: Text = Text("", "TOKENS")
    """Mean tokens of the documents that a sequence is packed with, none of which sees another."""
    lengths: Text = shared.LENGTHS.but(group=flag.TUNING)
    """Tokens of each example of a dataset, a number a line, JSONL or ShareGPT, which are packed: --documents, and --seq
    (a power of two that holds 95% of examples whole) and --tokens (--epochs) where they are not given."""
    epochs: Real = Real(None, "N", flag.TUNING)
    """With --lengths or --examples: passes over the dataset (one without it)."""
    examples: Whole = Whole(None, "N", flag.TUNING, limits=(1, 10**12))
    """Examples of a dataset whose lengths are not known one by one, with their mean (--documents 150): the tokens of a
    run."""
    method: Text = shared.METHOD
    lora_rank: Whole = shared.LORA_RANK
    lora_targets: Text = shared.LORA_TARGETS
    frozen: Text = shared.FROZEN
    teacher: Thing = shared.TEACHER
    attention: Text = shared.ATTENTION
    loss: Text = Text("", "NAME", flag.TUNING, offers=("sft", "dpo", "orpo", "kto"))
    """The loss of adapters, beside --method lora or qlora: dpo, orpo or kto; the next token without it."""
    skew: Real = Real(1.0)
    """Tokens of the busiest expert over the mean: 1 is balanced routing."""
    capacity: Real = shared.CAPACITY
    set: Several = shared.SET
    profile: Text = shared.PROFILE
    price: Text = shared.PRICE
    pricing: Text = shared.PRICING
    owned: Text = shared.OWNED
    carbon: Text = Text("", "G/KWH", flag.WHERE)
    """CO2 of the grid, in grams for a kWh (370, the mean of the US, without it)."""
    checkpoint_every: Text = Text("", "TIME", flag.RUN)
    """Time between checkpoints (30m); the best there is without it."""
    storage: Text = Text("", "BYTES/S", flag.RUN)
    """What storage takes from all hosts (50GB/s; 1 GB/s a host without it); 50GB/s,sync: the job waits for every
    save."""
    mtbf: Text = shared.MTBF.but()
    """Time between failures of the whole job (3h); as published of such chips and hosts without it."""
    restart: Text = Text("", "TIME", flag.RUN)
    """Time until a job that failed runs again, without loading the checkpoint (10m)."""
    spares: Text = Text("", "HOSTS", flag.RUN)
    """Spare hosts, paid for: 4, or 5% of them. Without it a failed host is replaced at once by someone else's."""
    deadline: Text = shared.DEADLINE.but(group=flag.WHERE)
    """With a chip alone or 'any': the time a run (with --tokens) or a step may take."""
    plan: Thing = shared.PLAN.but()
    """Judge this plan (tp8 pp4 dp16; fsdp=64,tensor=4,remat=block; a .toml; a Megatron, torchtitan or MaxText
    config) against the best."""
    alone: Switch = Switch(group=flag.PLAN)
    """Judge --plan alone, without looking for a better one."""
    measured: Text = shared.MEASURED
    fix: Text = Text("", "PLAN", flag.PLAN)
    """Settings the plans must have, such as tp8,zero=1|3,schedule=1f1b."""
    remat: Text = Text("", "NAMES", flag.PLAN, also=("--recompute",))
    """Recompute policies to choose from: none,selective,matmuls,block,block:5,offload …"""
    slack: Text = Text("1%", "PART", flag.PLAN)
    """How much slower than the fastest a simpler plan may be (0: the fastest that leaves room in memory)."""
    headroom: Text = Text("", "PART", flag.PLAN)
    """The part of memory that a recommended plan leaves free, such as 8%; without it, what keeps the chance of running
    out to one in twenty."""
    stack: Text = shared.STACK
    numerics: Text = shared.NUMERICS
    dtype: Text = shared.DTYPE.but(default="")
    """Format of matmuls: bf16 without it, fp8 …"""
    optimizer: Text = shared.OPTIMIZER
    force: Switch = shared.FORCE
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    rank: Text = Text("time", "BY", flag.SHOW, offers=("time", "cost"))
    """time, or cost: the fewest dollars, on this slice or a part of it."""
    top: Whole = shared.TOP
    largest: Text = Text("", "WHAT", flag.SHOW, offers=("batch", "model"))
    """Ask for the largest 'batch' or 'model' that fits the slice instead."""
    scaling: Switch = Switch(group=flag.SHOW)
    """Add the best plans of the same batch on smaller and larger slices; with two slices in --on (h100:64,h100:512),
    from one to the other."""
    codesign: Switch = Switch(group=flag.SHOW)
    """Add what better hardware would change."""


class SweepQuestion(Question):
    """A grid of questions to verify, train, serve and simulate."""

    grid: Thing = Thing(value="FILE", place=True, offers="files")
    """A TOML file of tables [[verify]], [[train]], [[serve]] and [[simulate]] whose values may be lists: every
    combination is asked."""
    jobs: Whole = Whole(0, "N")
    """Processes at once; as many as there are cores without it."""
    ray: Text = Text("", "WHERE")
    """Run on the Ray cluster at this address (auto, local, ray://host:10001)."""
    retry: Switch = Switch()
    """Ask again what failed before."""
    cache: Switch = Switch(default=True)
    """Use what was compiled before, if nothing has changed since."""
    columns: Several = Several("", "NAMES", flag.SHOW)
    """What --plot draws: a column of the rows, and up to two that it is drawn against (mfu,batch,seq)."""
    out: Text = shared.OUT.but()
    """Keep the answers here, a line of JSON each; what is in it is not asked again."""


class CompareQuestion(Question):
    """Plans, slices, stacks or engines, side by side. Several of each give every combination."""

    things: Items = Items((), "PLAN …", place=True, offers="files")
    """Plans ("tp8 pp4 dp16"), files of --save, or the word best; with PLAN=8.2s the step that was measured of it."""
    model: Thing = shared.MODEL.but(default="", place=False)
    on: Thing = shared.ON.but(default="")
    """A slice, or several to compare (h100:512,v5p:8x8x8); to serve, chips too (h100,v6e)."""
    batch: Text = shared.BATCH.but(default="")
    """Training: tokens of a step (4M), or sequences (512seq). Serving: sequences decoded at once."""
    seq: Text = shared.SEQ.but(default="")
    """Training: tokens of a sequence (8192, 32k)."""
    tokens: Text = shared.TOKENS.but()
    """Training: tokens of the whole run (15T), for days and dollars."""
    method: Text = shared.METHOD
    lora_rank: Whole = shared.LORA_RANK
    lora_targets: Text = shared.LORA_TARGETS
    frozen: Text = shared.FROZEN
    teacher: Thing = shared.TEACHER
    attention: Text = shared.ATTENTION
    prompt: Text = shared.PROMPT.but(default="")
    """Serving: tokens of a prompt (2048 without it)."""
    output: Text = shared.OUTPUT.but(default="")
    """Serving: output tokens of a request (512 without it)."""
    ttft: Text = shared.TTFT.but()
    """Serving: the TTFT to hold (500ms)."""
    tpot: Text = shared.TPOT.but()
    """Serving: the TPOT to hold (30ms)."""
    rate: Text = shared.RATE.but()
    """Serving: requests that come to each side (3/s): what it serves, and its latencies."""
    requests: Whole = shared.REQUESTS.but()
    """Serving: requests of that load in all; without --rate they come at once."""
    kv_dtype: Text = shared.KV_DTYPE.but()
    """Serving: format of the KV cache."""
    max_seqs: Whole = shared.MAX_SEQS.but()
    """Serving: max sequences per DP rank."""
    memory_fraction: Real = shared.MEMORY_FRACTION.but()
    """Serving: the part of HBM that engines may use."""
    measured: Text = shared.MEASURED.but(value="TIME")
    """Training: the step that was measured of the first plan (8.2s)."""
    price: Text = shared.PRICE
    profile: Text = shared.PROFILE
    stack: Text = shared.STACK.but(default="")
    """Training software, or several to compare: megatron,torchtitan …"""
    numerics: Text = shared.NUMERICS
    engine: Text = shared.ENGINE.but()
    """Serving software, or several to compare: vllm,sglang …"""
    dtype: Text = shared.DTYPE.but(default="")
    """Format of matmuls: bf16 without it, fp8 …"""
