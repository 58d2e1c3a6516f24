"""Megatron-LM: the arguments of its `pretrain_gpt.py`, one process for each chip."""

import math
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.flags import ReadFlags, flag_words, read_flags
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.imported import Given, Imported, left_over, needs, slice_counted, training_file, with_slice
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.source import Source
from dragonscale.exports.trainers.megatron.flags import (
    batch_flags,
    expert_flags,
    hides_exchanges,
    optimizer_flags,
    overlap_flags,
    parallel_flags,
    precision_flags,
    recompute_flags,
)
from dragonscale.exports.trainers.megatron.model import check_type, model_flags
from dragonscale.exports.trainers.megatron.model_read import model_read
from dragonscale.exports.trainers.megatron.reader import HARMLESS, heavy, number, plan_read, said_tokens, stack_read
from dragonscale.exports.trainers.megatron.settle import MegatronRun, settle
from dragonscale.exports.written import Program, Written

SCRIPT = "pretrain_gpt.py"
STEPS = 100
"""Steps that are written where a plan does not say how many tokens it trains on."""


def write(run: TrainingRun) -> Written:
    """The command of one process."""
    check_type(run.fields)
    settled = settle(run)
    words = flag_words(load_keys("megatron"), all_flags(settled))
    hosts, chips = hosts_of(run.slice)
    program = Program("train", (SCRIPT, *words), hosts, chips, per="chip", env=environment(settled))
    as_run = settled.plan if settled.plan != run.plan else None
    return Written({}, (program,), settled.differences, as_run, notes(settled))


def all_flags(settled: MegatronRun) -> dict[str, Any]:
    """Every flag of a run, in the order that people read them."""
    run = settled.run
    return {
        **model_flags(run.fields, run.file.model, run.file.seq), **parallel_flags(settled), **expert_flags(settled), **batch_flags(settled),
        **precision_flags(settled), **recompute_flags(settled), **optimizer_flags(settled), **schedule_flags(run), **overlap_flags(settled),
        **checkpoint_flags(settled),
    }  # fmt: skip


def steps_of(run: TrainingRun) -> int:
    """Steps that are written."""
    return run.steps or int(run.file.run.get("steps", 0)) or STEPS


def schedule_flags(run: TrainingRun) -> dict[str, Any]:
    """How long it trains and at what rate: the plan's own where it says, common values otherwise."""
    said = run.file.run
    rate = float(said.get("learning_rate", 3e-4))
    return {
        "--train-iters": steps_of(run), "--lr": rate, "--min-lr": float(f"{rate * float(said.get('final', 0.1)):.6g}"), "--lr-decay-style": "cosine",
        "--lr-warmup-fraction": 0.01, "--weight-decay": float(said.get("weight_decay", 0.1)), "--clip-grad": float(said.get("clip", 1.0)),
        "--init-method-std": 0.02, "--seed": int(said.get("seed", 1234)),
    }  # fmt: skip


def checkpoint_flags(settled: MegatronRun) -> dict[str, Any]:
    """Checkpoints, logs and data: random tokens, so that it runs as it is."""
    run = settled.run
    saved = {"--ckpt-format": "fsdp_dtensor"} if settled.fsdp else {
        "--ckpt-format": "torch_dist", "--async-save": True, "--use-persistent-ckpt-worker": True,
    }  # fmt: skip
    return {
        "--save": "checkpoints", "--load": "checkpoints", "--save-interval": int(run.file.run.get("every", 1000)), **saved,
        "--log-interval": 10, "--log-throughput": True, "--eval-interval": 1000, "--eval-iters": 0,
        "--manual-gc": True, "--manual-gc-interval": 100, "--no-create-attention-mask-in-dataloader": True,
        "--tokenizer-type": "NullTokenizer", "--mock-data": True, "--split": "99,1,0",
    }  # fmt: skip


def environment(settled: MegatronRun) -> dict[str, str]:
    """What Megatron-LM and Transformer Engine read from the environment."""
    plan, env = settled.plan, dict[str, str]()
    if settled.architecture not in ("blackwell",) and plan.tensor * plan.context > 1 and not settled.fsdp:
        # kernels that hide collectives are queued in order; Blackwell does not need it, Megatron-FSDP does not take it
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if hides_exchanges(settled) else "1"
    elif hides_exchanges(settled):
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"
    if settled.architecture in ("hopper", "blackwell"):
        env |= {"NVTE_FWD_LAYERNORM_SM_MARGIN": "16", "NVTE_BWD_LAYERNORM_SM_MARGIN": "16"}
    return env | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def notes(settled: MegatronRun) -> tuple[str, ...]:
    """What to change before a real run."""
    found = ["Tokens are random (--mock-data): give --data-path and a tokenizer, and a learning rate of your own."]
    if hosts_of(settled.run.slice)[0] > 1:
        found.append("The folder of --save must be one that all hosts see.")
    if settled.stack.overlap.expert and settled.ep > 1 and not hides_exchanges(settled):
        why = (
            "a block that is recomputed whole" if settled.plan.remat == "block" else "a pipeline with one chunk a rank"
        )
        found.append(
            f"Exchanges between experts are not hidden here, as stack {settled.stack.name} has them: Megatron-LM refuses that with {why}."
        )
    if not settled.run.steps and not settled.run.file.run.get("steps"):
        found.append(f"The plan does not say its tokens: --train-iters is {STEPS}.")
    return tuple(found)


def recognises(source: Source) -> bool:
    return source.command(SCRIPT) is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a command or a script that starts `pretrain_gpt.py`."""
    command, table = source.command(SCRIPT), load_keys("megatron")
    assert command is not None
    at = next(place for place, word in enumerate(command.words) if word.rsplit("/", 1)[-1] == SCRIPT)
    # scripts keep a flag and its value in one word of an array, which an unquoted `${ARGS[@]}` takes apart
    words = [piece for word in command.words[at + 1 :] for piece in (word.split() if word.startswith("--") else [word])]
    read = read_flags(table, words)
    return read_run(source, given, read, command.processes, "megatron", table.version)


def read_run(
    source: Source, given: Given, read: ReadFlags, processes: int, target: str, version: str, named: str = ""
) -> Imported:
    """The plan that arguments say, on so many processes; the chips are the user's word, the header's, or those processes. `named` is the
    model that is said by name."""
    piece = slice_counted(source, given, processes)
    if piece is None:
        how = f"--on CHIP (its {processes} processes are counted)" if processes else "--on SLICE"
        raise needs("its chips", how, source)
    told = (
        [f"It starts {processes} processes; it is read for {piece}."] if processes and processes != piece.chips else []
    )
    model = model_read(read, str(source.kept.get("model", ""))) or named
    if not model and not given.model and not source.kept.get("model"):
        raise needs("the model's sizes", "--model", source)
    from dragonscale.models import load_model

    built = load_model(given.model or model or str(source.kept["model"]))
    experts = any("e" in section.dims for section in built.program().sections)
    seq = number(read, "--seq-length", number(read, "--encoder-seq-length", 0))
    if not seq:
        raise InputError(f"{source.shown} does not say its --seq-length.")
    stack = stack_read(read)
    if target == "megatron-bridge" and stack in ("megatron-core", "megatron-overlap"):
        stack = target
    plan, batch, notes = plan_read(read, piece.chips, built.n_layers, experts)
    file = training_file(source, given, plan, batch, seq, model, stack)
    if tokens := said_tokens(read, batch, seq, file, STEPS if source.kept else 0):
        file = replace(file, tokens=tokens)
    if capacity := read.take("--moe-expert-capacity-factor"):
        file = replace(file, capacity=_capacity(capacity))
    weighty = () if target == "megatron-bridge" else heavy(read)
    ignored, unplanned = left_over(read.values, [name for name in read.values if HARMLESS.match(name)])
    found = Imported(target, version, file, (*told, *notes), ignored, (*weighty, *unplanned), tuple(read.unknown))
    return with_slice(found, piece)


def _capacity(value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--moe-expert-capacity-factor is {shorten(value)}; write a number.")
    return max(number, 0.0)
