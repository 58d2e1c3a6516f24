"""What a row of measured training runs means: the job, the plan, the software stack, and the seconds a step took.

Conventions of the sources: `dp` counts all copies that split the batch where dp·tp·cp·pp is the number of chips (FSDP
inside it), or only those outside FSDP where dp·fsdp·tp·cp·pp is; `ep` folds over `dp` and, in Megatron, over `tp`; a
TPU7x chip is two JAX devices, each with its own micro-batch; `-N` of a TPU v4 or v5p counts cores. A row that lacks what
the model needs raises `Skip` with the reason.
"""

import math
import re
from dataclasses import dataclass, replace

from dragonscale.errors import InputError
from dragonscale.evidence.collective_case import Skip, count, identity
from dragonscale.evidence.interconnect import read_torus, read_wires
from dragonscale.evidence.score import number
from dragonscale.evidence.training_model import Row, model_of
from dragonscale.hardware import Chip, Slice, Torus, load_chip
from dragonscale.hardware.slices import possible_shapes
from dragonscale.training.evaluation import Job, make_job
from dragonscale.training.plan import Plan

COLUMNS = (
    "chip", "dtype", "recompute", "source", "n_chips", "interconnect", "model", "layers", "d_model", "d_ff", "n_heads",
    "n_kv_heads", "head_dim", "vocab", "experts", "topk", "shared_experts", "moe_d_ff", "dense_layers", "gated_mlp",
    "tied_embeddings", "attention", "mla", "seq_len", "global_batch", "micro_batch", "grad_accum", "dp", "fsdp", "tp",
    "sp", "cp", "pp", "vpp", "ep", "step_s", "tokens_per_s_per_chip", "peak_mem_gib", "notes", "recompute_note",
    "dtype_note", "chips_per_node",
)  # fmt: skip

STACKS = (
    (r"SC21|Megatron-LM v2|MT-NLG|OPT-175B", "megatron-2021"),
    (r"vTrain", "megatron-deepspeed"),
    (r"Korthikanti", "megatron-2022"),
    (r"llm-foundry", "llm-foundry"),
    (r"torchtitan", "torchtitan"),
    (r"nanotron", "nanotron"),
    (r"JAX-Toolbox|maxtext configs/gpu", "xla-gpu"),
    (r"maxtext|tpu-recipes|axlearn|levanter|Google/", "maxtext"),
    (r"Megatron-Bridge.*\[(?:26\.0[6-9]|26\.1)", "megatron-bridge"),
    (r"Megatron-Bridge|Megatron-LM|Megatron-Core|NeMo|nemo|dgxc|NVIDIA", "megatron-core"),
)  # fmt: skip
"""Which stack a source ran, by a pattern of its name; the first that fits."""

MODES = (
    ("torchtitan", r"rowwise", "-rowwise"),
    ("torchtitan", r"eager", "-eager"),
    ("torchtitan", r"(?i)async ?TP", "-async"),
)
"""Modes of a stack that are stacks of their own, by a pattern of the row's notes."""

DTYPES = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "mxfp4", "int8")
REMAT = {"none": "none", "selective": "selective", "full": "block", "minimal": "matmuls", "offload": "offload"}


@dataclass(frozen=True)
class Run:
    """A measured run in the model's terms; `remat_known` is False where the planner must choose."""

    id: str
    source: str
    group: str
    job: Job
    plan: Plan
    seconds: float
    memory: float | None
    remat_known: bool
    assumed: tuple[str, ...] = ()


def run_of(row: Row, place: int) -> Run:
    """A row as a run."""
    if re.search(r"\bLoRA\b", row["model"]):
        raise Skip("only adapters are trained (LoRA)")
    model = model_of(row)
    chips = _needed(row, "n_chips")
    sequence, batch = _needed(row, "seq_len"), _needed(row, "global_batch")
    seconds = _seconds(row, chips, batch * sequence)
    stack = stack_of(row["source"], f"{row['notes']} {row['dtype_note']}")
    chip = chip_of(row)
    piece = slice_of(row, chip, chips)
    plan = plan_of(row, chip, stack)
    if plan.chips != chips:
        raise Skip("parallel sizes do not multiply to the number of chips")
    if batch % (plan.replicas * plan.microbatch):
        raise Skip("batch does not divide into the micro-batches")
    job = replace(make_job(model, piece, batch, sequence, stack), transport=read_wires(row["interconnect"]).transport)
    peak = number(row["peak_mem_gib"])
    assumed = ("network between nodes",) if _network_unknown(row, piece) else ()
    return Run(
        identity(row, place), row["source"], f"{stack} {chip.name}", job, plan, seconds, peak * 2**30 if peak else None,
        row["recompute"] not in ("unknown", ""), assumed,
    )  # fmt: skip


def _needed(row: Row, column: str) -> int:
    found = count(row, column)
    if found is None:
        raise Skip(f"{column} not stated")
    return found


def _seconds(row: Row, chips: int, tokens: int) -> float:
    seconds, rate = number(row["step_s"]), number(row["tokens_per_s_per_chip"])
    if seconds is None and rate is None:
        raise Skip("neither step time nor tokens per second stated")
    return seconds if seconds is not None else tokens / ((rate or 1.0) * chips)


def stack_of(source: str, notes: str = "") -> str:
    """The software stack of a source, with the mode that the notes name."""
    for pattern, stack in STACKS:
        if re.search(pattern, source):
            mode = next((mode for known, hint, mode in MODES if known == stack and re.search(hint, notes)), "")
            return stack + mode
    raise Skip(f"no software stack known for the source {source[:60]!r}")


def chip_of(row: Row) -> Chip:
    """The chip, with what its variant changes."""
    name = row["chip"].lower()
    try:
        if name == "h100-96gb-500w":
            return load_chip("h100").with_facts(
                **{"memory.hbm.capacity": 96e9, "memory.hbm.bandwidth": 2.4e12, "power": 500.0}
            )
        return load_chip(name)
    except InputError:
        raise Skip(f"unknown chip {name[:40]!r}" if name else "chip not stated") from None


def slice_of(row: Row, chip: Chip, chips: int) -> Slice:
    """The chips of a run and the wires between them."""
    if isinstance(chip.network, Torus):
        return _torus_slice(row, chip, chips)
    wires = read_wires(row["interconnect"])
    node, *above = chip.network.levels
    degree = node.degree
    if chips > degree and chips % degree:
        degree = next((size for size in (64, 32, 16, 8, 4) if size <= degree and chips % size == 0), 0)
    if not degree:
        raise Skip("chips do not fill whole nodes")
    leaf = replace(above[0], bandwidth=wires.egress(degree) or above[0].bandwidth * degree / node.degree)
    network = replace(chip.network, levels=(replace(node, degree=degree), leaf, *above[1:]))
    return Slice(replace(chip, network=network), (chips,))


def _network_unknown(row: Row, piece: Slice) -> bool:
    if isinstance(piece.chip.network, Torus):
        return False
    local = piece.chip.network.levels[0].degree
    return piece.chips > local and "not stated" in row["interconnect"]


def _torus_slice(row: Row, chip: Chip, chips: int) -> Slice:
    text = row["interconnect"]
    found = re.search(r"(?<![-\d])(\d+) slices?(?:\(s\))?|v\d\w*-\d+x(\d+)\b", text)
    pods = int(found[1] or found[2]) if found else 1
    if chips % pods:
        raise Skip("slices do not divide the chips")
    assert isinstance(chip.network, Torus)
    limit = math.prod(chip.network.pod)
    while chips // pods > limit or (chips // pods > 256 and chip.network.axes == 2):
        pods *= 2
    shape = read_torus(text)
    if math.prod(shape or (0,)) == chips // pods and len(shape) == chip.network.axes:
        return Slice(chip, shape, pods)
    shapes = [shape for shape in possible_shapes(chip) if math.prod(shape) == chips // pods]
    if not shapes:
        raise Skip("no slice of this many chips")
    return Slice(chip, min(shapes, key=lambda shape: max(shape) / min(shape)), pods)


def plan_of(row: Row, chip: Chip, stack: str) -> Plan:
    """How the run was split."""
    devices = 2 if chip.name == "tpu7x" else 1
    chips = _needed(row, "n_chips") * devices
    tensor, context = count(row, "tp") or 1, count(row, "cp") or 1
    pipe = count(row, "pp")
    if pipe is None or not row["tp"]:
        raise Skip("tp or pp not stated")
    virtual = count(row, "vpp")
    if virtual is None and pipe > 1 and "vpp" in row.get("missing_inputs", ""):
        raise Skip("pp without vpp stated")
    copies, sharded, shards = _copies(row, chips, tensor * context * pipe)
    expert = count(row, "ep") or 1
    if expert > 1:
        experts = count(row, "experts") or expert
        sliced = "ETP" in row["notes"] or (expert * tensor > experts and copies % expert == 0)
        folded = expert if sliced else expert // math.gcd(expert, tensor * context)
        if copies % folded:
            raise Skip("ep does not divide the copies")
        expert = folded
    microbatch = count(row, "micro_batch")
    if microbatch is None and "grad_accum" in row and count(row, "grad_accum"):
        microbatch = _needed(row, "global_batch") // (copies * _needed(row, "grad_accum"))
    if not microbatch:
        raise Skip("micro_batch not stated")
    if "local batch" in row["notes"] and pipe > 1:
        raise Skip("micro-batch of the pipeline not stated")
    fsdp = shards // math.gcd(shards, expert) if sharded else copies // expert
    data = copies // (fsdp * expert)
    return Plan(
        data=data,
        fsdp=fsdp // devices if fsdp % devices == 0 else fsdp,
        tensor=tensor,
        context=context,
        expert=expert,
        pipe=pipe,
        microbatch=microbatch * devices,
        virtual=virtual or 1,
        remat=_remat(row),
        zero=_zero(row, sharded, stack),
        dtype=_dtype(row["dtype"]),
        schedule="interleaved" if (virtual or 1) > 1 else "1f1b",
        sequence=row["sp"].lower() != "false" if tensor > 1 else True,
        ring="ring" in row["notes"].lower(),
    )


def _copies(row: Row, chips: int, model_ways: int) -> tuple[int, bool, int]:
    """How many ways the batch is split, whether state is sharded over them (FSDP), and how many ways."""
    if chips % model_ways:
        raise Skip("parallel sizes do not multiply to the number of chips")
    total = chips // model_ways
    cell = re.sub(r"\(.*", "", row["fsdp"])
    shards = math.prod(int(part) for part in cell.split("x") if part.isdigit()) if cell else 1
    sharded = bool(cell) and shards > 1
    if sharded and total % shards:
        raise Skip("fsdp does not divide the copies")
    return total, sharded, shards


def _zero(row: Row, sharded: bool, stack: str) -> int:
    """The ZeRO stage: FSDP is 3 (2 where weights stay gathered); the rest by the stack's habit."""
    stated = re.search(r"ZeRO-(\d)", row["notes"])
    if stated:
        return int(stated[1])
    if sharded or (row["fsdp"] and stack.startswith("torchtitan")):
        return 2 if "SHARD_GRAD_OP" in row["notes"] else 3
    return 0 if stack in ("megatron-2021", "megatron-2022", "megatron-deepspeed", "nanotron") else 1


def _dtype(text: str) -> str:
    if text in ("", "unknown"):
        raise Skip("dtype not stated")
    if text not in DTYPES:
        raise Skip(f"no model of training in {text[:20]!r}")
    return "bf16" if text == "fp16" else text


def _remat(row: Row) -> str:
    text = row["recompute"]
    if text == "custom":
        return "block"
    return REMAT.get(text, "none")
