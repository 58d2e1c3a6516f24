"""What `dscale run train` and `dscale run serve` can be asked."""

import math

from dragonscale.commands.questions import flag, shared
from dragonscale.commands.questions.flag import Duration, Length, Question, Real, Several, Switch, Text, Thing, Whole


class RunTrainQuestion(Question):
    """A run of a plan: a plan file with a `[run]` table says what is left out, and flags come before it."""

    plan: Thing = shared.PLAN.but(default=flag.REQUIRED, place=True)
    """A plan file (plan.toml, see --save of train), or fsdp=8,remat=block."""
    model: Thing = shared.MODEL.but(default="", place=False)
    data: Several = Several("", "FILES", offers="files")
    """Token files (.bin of uint16 or uint32, .npy), documents (.txt, .jsonl, .parquet), a folder or a dataset of the
    Hugging Face Hub (org/name), several with commas; * works. Or synthetic."""
    mask_documents: Switch = Switch()
    """Keep the documents of a sequence apart: attention does not cross from one into the next."""
    tokenizer: Text = shared.TOKENIZER.but()
    """The folder of tokenizer.json for documents, where it is not with the weights or the model; bytes: none."""
    eval_data: Several = Several("", "FILES", offers="files")
    """Data that is held out, to take the loss on."""
    eval_every: Whole = Whole(None, "N")
    """Steps between evaluations on --eval-data; 0: only at the end."""
    eval_batches: Whole = Whole(None, "N")
    """Batches of an evaluation."""
    steps: Whole = shared.STEPS.but()
    """How many steps, from the very first."""
    batch: Text = shared.BATCH.but(default="", value="SEQS")
    """Sequences of a step, over all devices."""
    seq: Text = shared.SEQ.but(default="")
    learning_rate: Real = Real(None, "RATE")
    """Learning rate at its peak."""
    warmup_steps: Whole = Whole(None, "N")
    """Steps until the learning rate is at its peak."""
    seed: Whole = shared.SEED.but(default=None, limits=(-math.inf, math.inf))
    """Seed of the weights and of the order of the data."""
    method: Text = shared.METHOD.but(offers=("full", "lora", "qlora"))
    """What is trained: full (every weight, without a word), lora or qlora adapters beside frozen weights."""
    lora_rank: Whole = shared.LORA_RANK.but()
    """The rank of adapters; 16 without it."""
    lora_targets: Text = shared.LORA_TARGETS
    lora_alpha: Real = Real(None, "ALPHA", flag.TUNING)
    """What adapters add is multiplied by this over their rank; twice the rank without it."""
    frozen: Text = shared.FROZEN
    capacity: Real = shared.CAPACITY.but(default=None, value="FACTOR")
    """Expert capacity factor; tokens beyond it are dropped. Without it none are; on GPUs before Hopper it is 1."""
    balance: Real = Real(None, "COEFFICIENT")
    """Coefficient of a loss that balances experts (0.01 and less are usual); none without it."""
    on: Thing = shared.ON.but(default="")
    """The slice whose planned step time to show beside the run."""
    profile: Text = shared.PROFILE.but()
    """Kernel times of the planned step: a file of `dscale calibrate`, own or built-in."""
    cpu: Whole = Whole(0, "N", flag.WHERE)
    """Run on so many virtual devices of this machine's CPU."""
    dtype: Text = shared.DTYPE.but(default="", offers=("bf16", "fp32", "fp8"))
    """What matrices are multiplied in: bf16, fp32 or fp8 (those of layers, each tensor with a scale of its own)."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    log: Whole = shared.LOG
    profile_steps: Whole = Whole(None, "N", flag.SHOW)
    """Record so many steps after those that warm up, and tell where their time went (see `dscale profile`)."""
    profile_to: Text = Text("", "FOLDER", flag.FILES, offers="files")
    """The folder of the profile; profile beside the checkpoints, or here."""
    load_weights: Text = shared.LOAD_WEIGHTS
    checkpoints: Text = Text("", "FOLDER", flag.FILES, offers="files")
    """The folder of checkpoints; a run goes on from the newest."""
    every: Whole = Whole(None, "N", flag.FILES)
    """Steps between checkpoints; 0: only at the end."""
    keep: Whole = Whole(None, "N", flag.FILES)
    """How many checkpoints stay."""
    metrics: Text = Text("", "FILE", flag.FILES, offers="files")
    """A file for a line of JSON a step (metrics.jsonl beside checkpoints)."""
    save_weights: Text = Text("", "FOLDER", flag.FILES, offers="files")
    """Write the trained model as a Hugging Face folder, at the end."""
    tensorboard: Text = Text("", "FOLDER", flag.FILES, offers="files")
    """A folder for TensorBoard."""
    wandb: Text = Text("", "PROJECT", flag.FILES)
    """Log to Weights & Biases, offline, in the folder wandb beside the checkpoints (`wandb sync` sends it)."""


class RunServeQuestion(Question):
    """A server: a plan file of `dscale serve --save` says what is left out, and flags come before it."""

    plan: Thing = Thing(value="PLAN|MODEL", group=flag.PLAN, place=True, offers="files")
    """A plan file (plan.toml, see --save of serve), a plan (tp2), or the model itself."""
    model: Thing = shared.MODEL.but(default="", place=False)
    load_weights: Text = shared.LOAD_WEIGHTS.but(group=flag.WORK)
    """The folder of Hugging Face .safetensors files, or of checkpoints of run train; the model's own where it is a
    folder."""
    random: Switch = Switch()
    """Serve random weights: what it takes in time, without a checkpoint."""
    tokenizer: Text = shared.TOKENIZER
    name: Text = Text("", "NAME")
    """What clients call the model; its own name without it."""
    lora_modules: Several = Several("", "NAME=FOLDER", flag.WORK)
    """Serve a LoRA too, a folder as PEFT writes it: requests for the model NAME are answered with it."""
    length: Length = Length("", "TOKENS")
    """Tokens of a sequence at most, prompt and output."""
    host: Text = shared.HOST
    port: Whole = shared.PORT.but(default=8000)
    api_key: Text = Text("", "KEY")
    """A key that clients must send; or give it as DSCALE_API_KEY."""
    queue_limit: Whole = shared.QUEUE_LIMIT.but(default=1024, group=flag.WORK)
    """Requests that may queue beyond those that the engines run (0: none); others are told to come again (429)."""
    grace: Duration = Duration("30s", "TIME")
    """How long requests under way may go on after SIGTERM or Ctrl-C."""
    on: Thing = shared.ON.but(default="")
    """The slice whose planned times to show beside the measured ones."""
    profile: Text = shared.PROFILE.but()
    """Kernel times of the planned times: a file of `dscale calibrate`, own or built-in."""
    cpu: Whole = Whole(0, "N", flag.WHERE)
    """Run on so many virtual devices of this machine's CPU."""
    replicas: Whole = shared.REPLICAS.but()
    """How many copies of the model, a process each."""
    prefill_replicas: Whole = shared.PREFILL_REPLICAS.but()
    """Disaggregate: so many processes that prefill, beside those that decode."""
    prefill_plan: Thing = shared.PLAN.but(offers=())
    """Their sharding and formats; the plan's without it."""
    router: Text = shared.ROUTER
    prefix_cache: Switch = Switch(default=True, group=flag.SOFTWARE)
    """Keep the KV cache of prompts for others that begin alike."""
    draft: Thing = shared.DRAFT.but(group=flag.SOFTWARE)
    """Speculate: the model that drafts, or ngram."""
    draft_weights: Text = Text("", "FOLDER", flag.SOFTWARE, offers="files")
    """The folder of the draft model's .safetensors files."""
    drafts: Whole = shared.DRAFTS.but(group=flag.SOFTWARE)
    """Speculate: tokens drafted at a time, by n-grams where --draft names no model."""
    max_seqs: Whole = shared.MAX_SEQS
    token_budget: Whole = shared.TOKEN_BUDGET
    memory_fraction: Real = shared.MEMORY_FRACTION
    pages: Whole = Whole(None, "N", flag.SOFTWARE)
    """Pages of KV cache of a data rank; as many as fit without it."""
    kv_dtype: Text = shared.KV_DTYPE.but(offers=("bf16", "int8", "fp32"))
    quantize: Text = shared.QUANTIZE.but(offers=("int8",))
    """Weights in a narrower format than the checkpoint's: int8."""
    dtype: Text = shared.DTYPE.but(default="", offers=("bf16", "fp32", "fp8"))
    """What matrices are multiplied in: bf16, fp32 or fp8 (those of layers, each tensor with a scale of its own)."""
    lazy: Switch = Switch(group=flag.SOFTWARE)
    """Start sooner: compile ways of sampling when they are first asked for, which then waits."""
    seed: Whole = shared.SEED.but(limits=(-math.inf, math.inf))
    """Seed of random weights, and of requests that give none."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    log_every: Duration = Duration("30s", "TIME", flag.SHOW)
    """Time between lines on stderr that lay measured beside planned; 0s: none."""
    record: Text = Text("", "FILE", flag.FILES, offers="files")
    """Write what happened, a line a request: what `dscale simulate --trace` replays and `dscale validate serving`
    scores."""


class RunRlQuestion(Question):
    """A run of GRPO in one process: the model, prompts and answers of a step, the rule that rewards them."""

    model: Thing = shared.MODEL
    plan: Thing = shared.PLAN.but(offers=())
    """How the trainer is split and its microbatch (fsdp=8,microbatch=8); the largest of 8,192 tokens that fits without
    a word."""
    rollout: Text = Text("tp1", "PLAN", flag.PLAN)
    """How the engine is split (tp1, tp2, dp4)."""
    rule: Text = Text("low", "RULE", offers=("low", "sorted", "short"))
    """What is rewarded: low (tokens of the lower half of the vocabulary), sorted (none below the last) or short."""
    prompts: Whole = shared.PROMPTS.but(default=16)
    """Prompts of a step, of random tokens."""
    samples: Whole = Whole(16, "N", limits=(2, 100_000))
    """Answers to each prompt."""
    prompt: Length = Length.of(shared.PROMPT, default="64")
    """Tokens of a prompt."""
    output: Length = Length.of(shared.OUTPUT, default="128")
    """Tokens at which an answer is cut off."""
    steps: Whole = shared.STEPS.but(default=20, limits=(1, 1_000_000))
    updates: Whole = Whole(1, "N", limits=(1, 10_000))
    """Updates of the weights in a step, each on its part of the answers."""
    learning_rate: Real = Real(1e-4, "RATE")
    """Learning rate at its peak."""
    clip: Real = Real(0.2, "PART", limits=(0.0, 10.0))
    """How far the ratio of probabilities may be from one."""
    kl: Real = Real(0.01, "WEIGHT", limits=(0.0, 100.0))
    """Weight of the KL divergence to the first weights; 0: without a reference."""
    max_seqs: Whole = shared.MAX_SEQS.but(default=64, group=flag.WORK, limits=(1, 65_536))
    """Answers that the engine has under way at once, at most; of many more the host falls behind a small model."""
    seed: Whole = shared.SEED.but(limits=(0, 2**31))
    """Seed of the weights, the prompts and the answers."""
    on: Thing = shared.ON.but(default="")
    """The slice whose planned phases to show beside the run."""
    cpu: Whole = Whole(0, "N", flag.WHERE)
    """Run on so many virtual devices of this machine's CPU."""
    dtype: Text = shared.DTYPE.but(default="", offers=("bf16", "fp32"))
    """What matrices are multiplied in: bf16, or fp32 (on a CPU without a word)."""
    assume: Several = shared.ASSUME
    family: Text = shared.FAMILY
    log: Whole = shared.LOG.but(default=1)
    load_weights: Text = shared.LOAD_WEIGHTS
