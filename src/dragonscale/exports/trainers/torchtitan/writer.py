"""torchtitan: a command `torchtitan.train --module … --config …` with a flag for each setting, and a small Python file
where flags do not reach (`titan_config`).

How a plan is said there:

- `data` is `data_parallel_replicate_degree`. `fsdp` and `expert` both split the batch and the state, so their product
  is
  `data_parallel_shard_degree`; `context` shards the state too, as here.
- Experts have a mesh of their own over the same ranks: `expert_parallel_degree` counts every rank that experts are
  spread over, tensor
  ranks first, then those of context, then data-parallel ones. It is expert x tensor here, times context where experts
  are folded over it.
- ZeRO-3 is `fsdp_reshard_after_forward always`, ZeRO-2 `never`.
- Without a pipeline `local_batch_size` is the microbatch and gradients add up; with one it holds all microbatches of a
  step.

This release keeps keys and values gathered over context ranks and has no ring; its float8 has scales by rows.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.flags import flag_words
from dragonscale.exports.header import header
from dragonscale.exports.hosts import hosts_of
from dragonscale.exports.keys import load_keys
from dragonscale.exports.runs import TrainingRun
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.torchtitan import config as titan_config
from dragonscale.exports.trainers.torchtitan import models as titan_models
from dragonscale.exports.trainers.torchtitan.stages import SCHEDULES, stage_flags
from dragonscale.exports.written import LaunchProgram, PlanDifference, WrittenFiles
from dragonscale.models.transformer import count_parameters
from dragonscale.training.plan import Plan, short_plan
from dragonscale.training.stack import stacks

TERMS = load_terms("torchtitan")

REMAT = {"none": "none", "selective": "selective", "block": "full"}
_P, _T = "--parallelism.", "--training."


def write(run: TrainingRun) -> WrittenFiles:
    """The command of a process, and the Python file where one is needed."""
    plan, differences = as_run(run)
    check(run, plan)
    files, chosen = model_words(run, plan, differences)
    flags = {**chosen, **parallel_flags(run, plan), **training_flags(run, plan), **other_flags(run)}
    words = (
        "torchtitan.train",
        *flag_words(load_keys("torchtitan"), flags),
        f"activation-checkpoint:{REMAT[plan.remat]}",
    )
    hosts, chips = hosts_of(run.slice)
    program = LaunchProgram(
        "train", words, hosts, chips, per="chip", module=True, env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    )
    return WrittenFiles(files, (program,), tuple(differences), None if plan == run.plan else plan, notes(run))


def experts_of(run: TrainingRun) -> int:
    """Experts of a layer; 0 of a dense model."""
    return max((section.dims.get("e", 0) for section in run.model.program().sections), default=0)


def as_run(run: TrainingRun) -> tuple[Plan, list[PlanDifference]]:
    """The plan as this release runs it, and what differs."""
    plan, found = run.plan, list[PlanDifference]()
    if plan.context > 1 and plan.context_by == "ring":
        why = "FlexAttention, its attention for language models, gathers keys and values; the ring went with 0.2"
        found.append(PlanDifference("context_by=ring", "keys and values are gathered", why, "context_by"))
        plan = replace(plan, context_by="gather")
    if experts_of(run) and plan.context > 1 and plan.fold == "tensor" and plan.expert > 1:
        if plan.expert % plan.context:
            near = replace(plan, fold="context", expert=1, fsdp=plan.fsdp * plan.expert)
            raise TERMS.refused("experts_before_data", plan=plan, near=short_plan(near))
        why = "its expert mesh takes context ranks before data-parallel ones"
        found.append(PlanDifference("fold=tensor", "experts are spread over context ranks too", why, "fold"))
        plan = replace(plan, fold="context", expert=plan.expert // plan.context, fsdp=plan.fsdp * plan.context)
    if plan.dtype == "fp8" and stacks()[run.file.stack].state.narrow_gathers:
        why = "torchtitan 0.3 has rowwise recipes alone; stack torchtitan-rowwise judges them"
        found.append(TERMS.difference("rowwise", why=why))
    return plan, found


def expert_degree(plan: Plan, experts: int) -> int:
    """Ranks that experts are spread over."""
    if not experts or (plan.etp and plan.tensor > 1):  # without expert parallelism tensor ranks slice every expert
        return 1
    return plan.expert * plan.tensor * (plan.context if plan.fold == "context" else 1)


def check(run: TrainingRun, plan: Plan) -> None:
    """What torchtitan refuses beyond the rules of the stack."""
    experts, degree = experts_of(run), expert_degree(plan, experts_of(run))
    even = (plan.tensor if plan.sequence else 1) * (2 * plan.context if plan.context > 1 else 1)
    if run.file.seq % even:
        raise TERMS.refused("sequence_multiple", even=even, run=run, short=short_plan(plan))
    if run.file.batch % (plan.replicas * plan.microbatch):
        raise TERMS.refused("batch_of_ranks", run=run, multiple=plan.replicas * plan.microbatch)
    if experts and experts % degree:
        raise Infeasible(f"torchtitan needs as many experts on every rank, and {experts} do not divide over {degree}.")
    if plan.pipe > 1 and run.fields.get("tie_word_embeddings"):
        raise Infeasible(f"torchtitan has no pipeline for tied embeddings, which {run.model.name} has; take pipe=1.")
    if plan.optimizer == "muon":
        raise TERMS.refused("muon")


def model_words(
    run: TrainingRun, plan: Plan, differences: list[PlanDifference]
) -> tuple[dict[str, str], dict[str, Any]]:
    """The file, where one is needed, and the flags that name the model."""
    parameters = float(count_parameters(run.model).total)
    flavor = titan_models.flavor_of(run.fields, parameters)
    dtype = plan.dtype if plan.dtype != "fp32" else "bf16"
    if flavor:
        longest = titan_models.flavors()[flavor]["max_position_embeddings"]
        if run.file.seq > longest:
            raise TERMS.refused("positions", flavor=flavor, longest=longest, run=run)
        if function := titan_models.function_for(flavor, dtype, plan.context > 1):
            return {}, {"--module": flavor.partition("/")[0], "--config": function}
    module = flavor.partition("/")[0] or titan_models.MODULES.get(str(run.fields.get("model_type")), "")
    sizes = None if flavor else titan_models.own_sizes(run.fields, run.model.name)
    if sizes is not None:
        sizes["max_seq_len"] = max(sizes["max_seq_len"], run.file.seq)
    chosen = titan_config.converters(dtype, experts_of(run) > 0, compiled(run))
    attention = "flex" if module == "gpt_oss" and plan.context > 1 else ""
    like = flavor or {"llama3": "llama3/8B", "qwen3": "qwen3/8B"}[module]
    text = titan_config.config_text(like, chosen, attention, f"./assets/hf/{run.model.name}", sizes, run.model.name)
    title = f"torchtitan {load_keys('torchtitan').version}"
    flags = {"--module": titan_config_module(), "--config": "run"}
    return {titan_models.FILE: header(run, title, differences) + text}, flags


def titan_config_module() -> str:
    """The module that the Python file is."""
    return titan_models.FILE.removesuffix(".py")


def parallel_flags(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """The mesh; every degree is written, since config functions set some themselves."""
    flags: dict[str, Any] = {
        f"{_P}data_parallel_replicate_degree": plan.data,
        f"{_P}data_parallel_shard_degree": plan.fsdp * plan.expert,
        f"{_P}fsdp_reshard_after_forward": "always" if plan.zero == 3 else "never",
        f"{_P}tensor_parallel_degree": plan.tensor,
        f"{_P}context_parallel_degree": plan.context,
        f"{_P}pipeline_parallel_degree": plan.pipe,
        f"{_P}expert_parallel_degree": expert_degree(plan, experts_of(run)),
    }
    if plan.tensor > 1 and not plan.sequence:
        flags[f"{_P}enable_sequence_parallel"] = False
    if plan.context > 1:
        flags[f"{_P}context_parallel_load_balancer"] = "headtail"
    if plan.pipe > 1:
        flags[f"{_P}pipeline_parallel_schedule"] = SCHEDULES[plan.schedule]
        flags[f"{_P}pipeline_parallel_microbatch_size"] = plan.microbatch
        flags |= stage_flags(plan, run.model.n_layers)
    return flags


def training_flags(run: TrainingRun, plan: Plan) -> dict[str, Any]:
    """The batch, the sequence, the steps and the number formats."""
    local = run.file.batch // plan.replicas if plan.pipe > 1 else plan.microbatch
    return {
        f"{_T}local_batch_size": local,
        f"{_T}global_batch_size": run.file.batch,
        f"{_T}seq_len": run.file.seq,
        f"{_T}steps": run.steps or None,
        f"{_T}mixed_precision_param": "float32" if plan.dtype == "fp32" else "bfloat16",
        # Graphs exclude pipelines and expert parallelism, and are not what times are expected of.
        f"{_T}disable_cuda_graphs": True,
        "--optimizer.implementation": "fused_opt_states_bf16" if plan.optimizer == "adam-bf16" else "fused",
    }


def compiled(run: TrainingRun) -> bool:
    """Whether the stack that is expected compiles."""
    return "eager" not in run.file.stack


def other_flags(run: TrainingRun) -> dict[str, Any]:
    """What the expectation rests on beside the plan (compiled layers, a loss in pieces, no profiler),
    and checkpoints."""
    stack, said = stacks()[run.file.stack], run.file.run
    return {
        "--compile.enable": compiled(run),
        "--compile.components": "model,loss" if compiled(run) else None,
        "--compile.enable_async_tensor_parallel": compiled(run) and "async" in stack.name and run.plan.tensor > 1,
        "--loss.num_chunks": max(int(stack.memory.loss_chunks), 1),
        "--optimizer.param_groups.0.optimizer_kwargs.lr": said.get("learning_rate"),
        "--lr_scheduler.warmup_steps": said.get("warmup"),
        f"{_T}max_norm": said.get("clip"),
        "--debug.seed": said.get("seed"),
        "--checkpoint.enable": True,
        "--checkpoint.folder": said.get("checkpoints"),
        "--checkpoint.interval": said.get("every", 500),
        "--checkpoint.keep_latest_k": said.get("keep"),
        "--checkpoint.async_mode": "async",
        "--metrics.log_freq": 10,
        "--profiler.enable_profiling": False,
    }


def notes(run: TrainingRun) -> tuple[str, ...]:
    """What a user still has to see to."""
    data = TERMS.say("data")
    steps = () if run.steps else ((TERMS.say("no_steps")),)
    return (data, *steps)
