"""A plan in words: what each degree splits, its mesh as a drawing, who takes it, and how full it makes the memory."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from dragonscale.commands.train.train_records import PlanReport, TrainReport
from dragonscale.training.plan.plan import Plan, differences, layers_of, short_plan, without_layers

# A plan that our own program takes is named unless it is so much slower.
MAX_SLOWDOWN = 1.5
# Chips of a replica that are drawn one by one.
MAX_CELLS = 8
MAX_STAGES = 3
WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def split_text(plan: Plan) -> str:
    """What each degree splits, in words."""
    sharded = WORDS["sharded"][plan.zero]
    # axes of degree 1 split nothing and are left out
    parts = [text.format(plan[axis], sharded=sharded) for axis, text in WORDS["splits"].items() if plan[axis] > 1]
    # Megatron counts expert parallelism over ranks of other axes too
    expert_ranks = plan.expert
    if plan.fold == "context":
        expert_ranks *= plan.context
    if not plan.etp:
        expert_ranks *= plan.tensor
    if expert_ranks > plan.expert > 1:
        index = next(index for index, part in enumerate(parts) if "experts" in part)
        parts[index] += f" (EP{expert_ranks} with the ranks of other axes)"
    parts = parts or ["one chip"]
    if plan.context > 1:
        parts.append(WORDS["contexts"][plan.context_by])
    parts.append(f"microbatches of {plan.microbatch} sequence{'s' * (plan.microbatch > 1)}")
    recompute = WORDS["recomputed"]
    policy = recompute.get(without_layers(plan.remat), f"recompute {plan.remat}")
    chunk = " of every chunk" if plan.pipe > 1 else ""
    parts.append(policy.format(layers_of(plan.remat), chunk=chunk))
    if layers := layers_of(plan.offload):
        parts.append(recompute[without_layers(plan.offload)].format(layers))
    return ", ".join(parts)


def abbreviations_text(plan: Plan) -> str:
    """What the abbreviations of a plan stand for, of those that it has.

    >>> from dragonscale.training.plan.plan_file import parse_plan
    >>> abbreviations_text(parse_plan("fsdp=8,zero=3"))
    'fsdp = sharded data parallel, z3 = ZeRO-3, none = no recompute'
    """
    axes = [axis for axis in WORDS["abbreviations"] if plan[axis] > 1]
    texts = [WORDS["abbreviations"][axis] for axis in axes]
    texts.append(f"z{plan.zero} = ZeRO-{plan.zero}")
    recompute = WORDS["recomputed"].get(without_layers(plan.remat))
    if recompute is not None and not layers_of(plan.remat):
        texts.append(f"{plan.remat} = {recompute}")
    return ", ".join(texts)


def mesh_drawing(plan: Plan, width: int = 78) -> str:
    """The mesh: a line for each stage, a box for each replica, a square for each chip."""
    # replicas are boxes and pipeline stages lines, so what is left of the mesh fills a box
    chips_of_replica = plan.context * plan.tensor
    cells = "■" * min(chips_of_replica, MAX_CELLS)
    if chips_of_replica > MAX_CELLS:
        cells += f"…{chips_of_replica}"
    # 22 columns are for the stage's number and how many replicas there are; a box has brackets and a space
    boxes = max(1, min(plan.replicas, (width - 22) // (len(cells) + 3)))
    row = " ".join([f"[{cells}]"] * boxes)
    if plan.replicas > boxes:
        row += f" … x{plan.replicas}"
    lines = ["the mesh: a box for each replica, a square for each chip"]
    if plan.pipe == 1:
        return "\n".join([*lines, f"  {row}"])
    lines += [f"  stage {stage:<3} {row}" for stage in range(min(plan.pipe, MAX_STAGES))]
    if plan.pipe > MAX_STAGES:
        lines.append(f"  …         x{plan.pipe} stages")
    return "\n".join(lines)


def taken_text(report: TrainReport, first: PlanReport) -> str:
    """Whether our commands take the plan; where they do not, why, and the best plan that they take with what it has
    otherwise."""
    if first.verifiable and first.runnable:
        return "`dscale run` and `dscale verify`"
    if first.verifiable:
        return "`dscale verify` only"
    if first.runnable:  # which has no reason against it
        return "`dscale run` only"
    if not first.not_run:
        return "neither `dscale run` nor `dscale verify`"
    text = f"neither `dscale run` nor `dscale verify`: {first.not_run}"
    # the search kept it where the recommended plan is none that we run
    other = report.runs
    if other is None or other.step_s >= MAX_SLOWDOWN * first.step_s:
        return text
    changed = ", ".join(f"{name}={value}" for name, value in differences(first.plan, other.plan).items())
    slower = f"{other.step_s / first.step_s - 1:+.1%}"
    takers = "both take" if other.verifiable else "`dscale run` takes"
    return f"{text}; the best that {takers}: {short_plan(other.plan)} ({slower}; {changed})"


# Of the memory that is used, from which on a part of it is named, and how many are.
MIN_PART = 0.05
MAX_PARTS = 3


@dataclass(frozen=True)
class MemoryText:
    """How full the fullest chip is: in numbers, in a sentence, and the tone of both."""

    used: str
    sentence: str
    tone: str


def memory_text_of(first: PlanReport) -> MemoryText:
    """How full a plan makes the fullest chip."""
    used = f"{first.hbm_bytes / 1e9:.1f} of {first.hbm_limit_bytes / 1e9:.1f}GB"
    on_chip = f"{used} on the fullest chip"
    if first.hbm_bytes > first.hbm_limit_bytes:
        return MemoryText(used, f"{on_chip}, does not fit", "bad")
    left = f"{on_chip}, {(first.hbm_limit_bytes - first.hbm_bytes) / 1e9:.1f}GB left"
    if first.tight:
        return MemoryText(used, f"{left}, tight", "warn")
    return MemoryText(used, left, "")


def memory_parts_text(first: PlanReport) -> str:
    """The largest parts of what is on the fullest chip."""
    parts = sorted(first.memory, key=lambda part: -part.bytes)
    large = [part for part in parts if part.bytes >= MIN_PART * first.hbm_bytes][:MAX_PARTS]
    return ", ".join(f"{part.bytes / 1e9:.1f}GB {part.name}" for part in large)


def flop_rate_text(first: PlanReport) -> str:
    """The model's FLOP/s of a chip, of each device where it shows several, and the MFU as the software logs it."""
    rate = first.mfu * first.peak_flops
    text = f"{rate / 1e12:,.1f} TFLOP/s a chip"
    if first.devices > 1:
        text += f", {rate / first.devices / 1e12:,.1f} a device ({first.devices} a chip)"
    if first.plan.remat != "none" and first.peak_flops:
        text += f"; HFU {first.flops / (first.step_s * first.peak_flops):.1%}"
    return f"{text}; {first.logged_mfu}" if first.logged_mfu else text


def releases_text(first: PlanReport) -> str | None:
    """The plan under earlier releases of its software."""
    if not first.releases:
        return None
    rows = (
        f"{row.when}: {row.step_s:.3g}s, {row.hbm_bytes / 1e9:.1f}GB (--stack {row.stack})" for row in first.releases
    )
    return "; ".join(rows)


def host_memory_text(first: PlanReport) -> str | None:
    """What a plan needs of the memory of each host; None where it keeps nothing there."""
    if not first.host_bytes:
        return None
    chips = "a chip" if first.host_chips == 1 else f"{first.host_chips} chips"
    needed, limit = (f"{size / 1e9:,.0f}GB" for size in (first.host_node_bytes, first.host_limit_bytes))
    contents = WORDS["hosted"].get(without_layers(first.plan.offload), WORDS["hosted"]["activations:N"])
    return f"{needed} a node ({chips}, whose share is {limit}): {contents}"
