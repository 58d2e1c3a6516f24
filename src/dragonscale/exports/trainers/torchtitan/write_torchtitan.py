"""torchtitan: a command `torchtitan.train --module … --config …` with a flag for each setting, and a small Python file
where flags do not reach.

How a plan is said there:

- `data` is `data_parallel_replicate_degree`. `fsdp` and `expert` both split the batch and the state, so their
  product is `data_parallel_shard_degree`; `context` shards the state too, as here.
- Experts have a mesh of their own over the same ranks: `expert_parallel_degree` counts every rank that experts are
  spread over, tensor ranks first, then those of context, then data-parallel ones. It is expert x tensor here, times
  context where experts are folded over it.
- ZeRO-3 is `fsdp_reshard_after_forward always`, ZeRO-2 `never`.
- Without a pipeline `local_batch_size` is the microbatch and gradients add up; with one it holds all microbatches of a
  step.

This release keeps keys and values gathered over context ranks and has no ring; its float8 has scales by rows.
"""

from dataclasses import replace
from typing import Any

from dragonscale.exports.keys import flag_words, load_keys
from dragonscale.exports.runs import TrainingRun, header
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.torchtitan import titan_models
from dragonscale.exports.trainers.torchtitan.titan_models import stage_flags
from dragonscale.exports.written import PlanDifference, WrittenFiles
from dragonscale.models.transformer import count_parameters
from dragonscale.training.plan.plan import Plan, short_plan
from dragonscale.training.plan.stack import stacks

TERMS = load_terms("torchtitan")
REMAT = {"none": "none", "selective": "selective", "block": "full"}


def expert_degree(run: TrainingRun) -> int:
    """Ranks that experts are spread over."""
    plan = run.plan
    if not run.experts or (plan.etp and plan.tensor > 1):
        return 1  # without expert parallelism tensor ranks slice every expert
    return plan.expert * plan.tensor * (plan.context if plan.fold == "context" else 1)


def compiled(run: TrainingRun) -> bool:
    """Whether the stack that is expected compiles."""
    return "eager" not in run.file.stack


def _settings(run: TrainingRun) -> dict[str, Any]:
    """What the flags are about."""
    stack, plan = stacks()[run.file.stack], run.plan
    return {
        "even": (plan.tensor if plan.sequence else 1) * (2 * plan.context if plan.context > 1 else 1),
        "each": plan.replicas * plan.microbatch,
        "short": short_plan(plan),
        "shards": plan.fsdp * plan.expert,
        "expert_degree": expert_degree(run),
        "compiled": compiled(run),
        "local": run.file.batch // plan.replicas if plan.pipe > 1 else plan.microbatch,
        "overlapped": compiled(run) and "async" in stack.name and plan.tensor > 1,
        "loss_chunks": max(int(stack.memory.loss_chunks), 1),
    }


def write(run: TrainingRun) -> WrittenFiles:
    """The command of a process, and the Python file where one is needed."""
    plan, differences = as_run(run)
    ran = run.running(plan)
    settings = _settings(ran)
    TERMS.refuse(ran, **settings)
    files, flags = model_words(ran, header(run, f"torchtitan {load_keys('torchtitan').version}", differences))
    flags |= TERMS.group("parallelism", ran, **settings)
    flags |= stage_flags(plan, run.model.n_layers) if plan.pipe > 1 else {}
    flags |= TERMS.group("training", ran, **settings)
    remat = f"activation-checkpoint:{REMAT[plan.remat]}"
    words = ("torchtitan.train", *flag_words(load_keys("torchtitan"), flags), remat)
    written = WrittenFiles(files, differences=tuple(differences), notes=TERMS.remark_on(ran))
    env = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    return run.trained(plan, words, written, per="chip", module=True, env=env)


def as_run(run: TrainingRun) -> tuple[Plan, list[PlanDifference]]:
    """The plan as this release runs it, and what differs."""
    plan, differences = run.plan, list[PlanDifference]()
    if plan.context > 1 and plan.context_by == "ring":
        differences.append(TERMS.difference("ring"))
        plan = replace(plan, context_by="gather")
    if run.experts and plan.context > 1 and plan.fold == "tensor" and plan.expert > 1:
        if plan.expert % plan.context:
            near = replace(plan, fold="context", expert=1, fsdp=plan.fsdp * plan.expert)
            raise TERMS.refused("experts_before_data", plan=plan, near=short_plan(near))
        differences.append(TERMS.difference("fold"))
        plan = replace(plan, fold="context", expert=plan.expert // plan.context, fsdp=plan.fsdp * plan.context)
    if plan.dtype == "fp8" and stacks()[run.file.stack].state.narrow_gathers:
        differences.append(TERMS.difference("rowwise"))
    return plan, differences


def model_words(run: TrainingRun, top: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The file, where one is needed (below a comment), and the flags that name the model."""
    plan = run.plan
    flavor = titan_models.flavor_of(run.fields, float(count_parameters(run.model).total))
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
    chosen = titan_models.converters(dtype, run.experts > 0, compiled(run))
    attention = "flex" if module == "gpt_oss" and plan.context > 1 else ""
    like = flavor or {"llama3": "llama3/8B", "qwen3": "qwen3/8B"}[module]
    text = titan_models.config_text(like, chosen, attention, run.model.name, sizes)
    flags = {"--module": titan_models.FILE.removesuffix(".py"), "--config": "run"}
    return {titan_models.FILE: top + text}, flags
