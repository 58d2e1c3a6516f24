"""What `dscale run serve` can be asked."""

from dataclasses import dataclass

from dragonscale.app.questions.flag import (
    ASSUME,
    DTYPE,
    FAMILY,
    FILES,
    MODEL,
    ON,
    PLAN,
    PROFILE,
    SHOW,
    SOFTWARE,
    WHERE,
    Real,
    Several,
    Switch,
    Text,
    Thing,
    Whole,
)
from dragonscale.app.questions.serving import DRAFT, KV_DTYPE, MAX_SEQS, MEMORY_FRACTION, ROUTER, TOKEN_BUDGET


@dataclass(frozen=True)
class RunServeQuestion:
    """A server: a plan file of `dscale serve --save` says what is left out, and flags come before it."""

    plan: Thing = Thing(
        "A plan file (plan.toml, see --save of serve), a plan (tp2), or the model itself.",
        value="PLAN|MODEL",
        group=PLAN,
        place=True,
        offers="files",
    )
    model: Thing = MODEL.but(default="", place=False)
    weights: Text = Text(
        (
            "The folder of Hugging Face .safetensors files, or of checkpoints of run train; the model's own where it "
            "is a folder."
        ),
        default="",
        value="FOLDER",
        offers="files",
    )
    random: Switch = Switch("Serve random weights: what it takes in time, without a checkpoint.")
    tokenizer: Text = Text(
        "The folder of tokenizer.json where it is not with the model or the weights.",
        default="",
        value="FOLDER",
        offers="files",
    )
    name: Text = Text("What clients call the model; its own name without it.", default="", value="NAME")
    length: Text = Text("Tokens of a sequence at most, prompt and output.", default="", value="TOKENS")
    host: Text = Text("The address to listen on.", default="127.0.0.1", value="HOST")
    port: Whole = Whole("The port; 0: any that is free.", default=8000, value="N")
    api_key: Text = Text("A key that clients must send; or give it as DSCALE_API_KEY.", default="", value="KEY")
    queue_limit: Whole = Whole(
        "Requests that may queue beyond those that the engines run (0: none); others are told to come again (429).",
        default=1024,
        value="N",
        also=("--queue",),
    )
    grace: Text = Text("How long requests under way may go on after SIGTERM or Ctrl-C.", default="30s", value="TIME")
    on: Thing = ON.but(about="The slice whose planned times to show beside the measured ones.", default="")
    kernels: Text = PROFILE.but(
        about=(
            "Kernel times of the planned times (--profile of the planner): a file of `dscale calibrate`, own or "
            "built-in."
        )
    )
    cpu: Whole = Whole("Run on so many virtual devices of this machine's CPU.", default=0, value="N", group=WHERE)
    replicas: Whole = Whole("How many copies of the model, a process each.", default=None, value="N", group=PLAN)
    prefill_replicas: Whole = Whole(
        "Disaggregate: so many processes that prefill, beside those that decode.", default=None, value="N", group=PLAN
    )
    prefill_plan: Text = Text(
        "Their sharding and formats; the plan's without it.", default="", value="PLAN", group=PLAN
    )
    router: Text = ROUTER
    prefix_cache: Switch = Switch(
        "Keep the KV cache of prompts for others that begin alike.", default=True, group=SOFTWARE
    )
    draft: Thing = DRAFT.but(about="Speculate: the model that drafts, or ngram.", group=SOFTWARE)
    draft_weights: Text = Text(
        "The folder of the draft model's .safetensors files.",
        default="",
        value="FOLDER",
        group=SOFTWARE,
        offers="files",
    )
    drafts: Whole = Whole(
        "Speculate: tokens drafted at a time, by n-grams where --draft names no model.",
        default=None,
        value="N",
        group=SOFTWARE,
        also=("--draft-tokens",),
    )
    max_seqs: Whole = MAX_SEQS.but(also=("--sequences", "--batch"))
    token_budget: Whole = TOKEN_BUDGET.but(also=("--tokens",))
    memory_fraction: Real = MEMORY_FRACTION.but(also=("--memory",))
    pages: Whole = Whole(
        "Pages of KV cache of a data rank; as many as fit without it.", default=None, value="N", group=SOFTWARE
    )
    kv_dtype: Text = KV_DTYPE.but(offers=("bf16", "int8", "fp32"))
    quantize: Text = Text(
        "Weights in a narrower format than the checkpoint's: int8.",
        default="",
        value="DTYPE",
        group=SOFTWARE,
        offers=("int8",),
    )
    dtype: Text = DTYPE.but(about="What matrices are multiplied in: bf16 or fp32.", default="", offers=("bf16", "fp32"))
    lazy: Switch = Switch(
        "Start sooner: compile ways of sampling when they are first asked for, which then waits.", group=SOFTWARE
    )
    seed: Whole = Whole("Seed of random weights, and of requests that give none.", default=0, value="N")
    assume: Several = ASSUME
    family: Text = FAMILY
    log: Text = Text(
        "Time between lines on stderr that lay measured beside planned; 0s: none.",
        default="30s",
        value="TIME",
        group=SHOW,
    )
    record: Text = Text(
        (
            "Write what happened, a line a request: what `dscale simulate --trace` replays and `dscale validate "
            "serving` scores."
        ),
        default="",
        value="FILE",
        group=FILES,
        offers="files",
    )
