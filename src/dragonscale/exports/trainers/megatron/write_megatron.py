"""Plans as arguments of Megatron-LM's `pretrain_gpt.py`, one process for each chip.

How the plan's axes become Megatron's (the flags themselves are the groups of `terms/megatron.toml`):

| plan | Megatron |
|---|---|
| data x fsdp x expert | what is left of the ranks: data parallel |
| zero 1 over fsdp, expert and context | `--use-distributed-optimizer`, `data` copies of it by its instances |
| zero 2, 3 | Megatron-FSDP, `--data-parallel-sharding-strategy optim_grads` or `optim_grads_params` |
| experts whole over tensor | EP is expert x tensor, ETP 1 |
| experts sliced (etp) | EP is expert, ETP is tensor |
| experts over context too (fold) | EP is that, times context |
"""

from typing import Any

from dragonscale.exports.flags import flag_words
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun, hosts_of
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import check_type, model_flags
from dragonscale.exports.trainers.megatron.read_megatron import SCRIPT
from dragonscale.exports.trainers.megatron.settle import STEPS, MegatronRun, settings, settle
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.training.stages import chunk_sizes

TERMS = load_terms("megatron")
GROUPS = ("ranks", "experts", "batch", "precision", "recompute", "optimizer", "schedule", "overlap", "checkpoint")
"""The groups of flags after the model's and the pipeline's, in the order that people read them."""


def write(run: TrainingRun) -> WrittenFiles:
    """The command of one process."""
    check_type(run.fields)
    settled = settle(run)
    flags = {**model_flags(run.fields, run.file.model, run.file.seq), **plan_flags(settled)}
    hosts, chips = hosts_of(run.slice)
    words = (SCRIPT, *flag_words(load_keys("megatron"), flags))
    program = LaunchProgram("train", words, hosts, chips, per="chip", env=environment(settled))
    as_run = settled.plan if settled.plan != run.plan else None
    return WrittenFiles({}, (program,), settled.differences, as_run, notes(settled))


def plan_flags(settled: MegatronRun, leave: str = "") -> dict[str, Any]:
    """Every flag of a plan, but for a group that is left."""
    flags, values = TERMS.group("degrees", settled) | pipeline_flags(settled), settings(settled)
    for group in GROUPS:
        flags |= TERMS.group(group, settled, **values) if group != leave else {}
    return flags


def pipeline_flags(settled: MegatronRun) -> dict[str, Any]:
    """Layers dealt to stages: by counts that divide, by those with the ends counted, or stage by stage."""
    plan, layers = settled.plan, settled.layers
    chunks = plan.pipe * plan.virtual
    virtual = {"--num-virtual-stages-per-pipeline-rank": plan.virtual} if plan.virtual > 1 else {}
    if plan.pipe == 1:
        return {}
    if plan.layout == "even" and layers % chunks == 0:
        return virtual
    if plan.layout == "ends" and (layers + 2) % chunks == 0:
        ends = {f"--account-for-{end}-in-pipeline-split": True for end in ("embedding", "loss")}
        return virtual | ends
    further = "m" * int(settled.fields.get("num_nextn_predict_layers") or 0)
    return {"--pipeline-model-parallel-layout": layout_text(chunk_sizes(layers, chunks, plan.layout), further)}


def layout_text(sizes: list[int], further: str = "") -> str:
    """Layers of every stage as Megatron-LM writes them: the embedding, `t` a layer, `m` a module for further tokens,
    the loss.

    >>> layout_text([1, 2, 1])
    'Et|tt|tL'
    """
    return "E" + "|".join("t" * size for size in sizes) + further + "L"


def environment(settled: MegatronRun) -> dict[str, str]:
    """What Megatron-LM and Transformer Engine read from the environment."""
    plan, env = settled.plan, dict[str, str]()
    # kernels that hide collectives are queued in order; Blackwell does not need it, Megatron-FSDP does not take it
    ordered = settled.architecture != "blackwell" and plan.tensor * plan.context > 1 and not settled.fsdp
    if ordered or settled.hides_exchanges:
        env["CUDA_DEVICE_MAX_CONNECTIONS"] = "32" if settled.hides_exchanges else "1"
    if settled.architecture in ("hopper", "blackwell"):
        env |= {"NVTE_FWD_LAYERNORM_SM_MARGIN": "16", "NVTE_BWD_LAYERNORM_SM_MARGIN": "16"}
    return env | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def notes(settled: MegatronRun) -> tuple[str, ...]:
    """What to change before a real run."""
    whole, run = settled.plan.remat == "block", settled.run
    why = "a block that is recomputed whole" if whole else "a pipeline with one chunk a rank"
    told = {
        "data": True,
        "shared_folder": hosts_of(run.slice)[0] > 1,
        "exposed_exchanges": settled.stack.overlap.expert and settled.ep > 1 and not settled.hides_exchanges,
        "no_tokens": not run.all_steps,
    }
    return TERMS.notes(told, settled=settled, why=why, steps=STEPS)
