"""Advice on a plan in sentences, and the flags with which it is followed.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.advice.speedups import speedups
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 64, 8192)
>>> help_row(job, speedups(job, parse_plan("fsdp=64,remat=block"))[0]).change
'recompute nothing (remat=none)'
"""

from dragonscale.blocks.sheet import signed_percent
from dragonscale.commands.train.train_records import Help, MemoryRow
from dragonscale.training.advice.assessment import PlanAssessment, chips_of_host
from dragonscale.training.advice.memory_relief import MemoryRelief
from dragonscale.training.advice.numerics import OtherNumerics
from dragonscale.training.advice.plan_advice import PlanAdvice
from dragonscale.training.advice.speedups import (
    BATCH,
    FEWER_CHIPS,
    MICROBATCH,
    MIN_GAIN,
    NO_RECOMPUTE,
    ONE_PASS,
    STACK,
    Overhead,
    SpeedUp,
)
from dragonscale.training.cost.evaluation import Job
from dragonscale.training.plan.plan import differences, short_plan


def bound_text(assessed: PlanAssessment, overhead: Overhead | None) -> str:
    """What bounds the step, and what takes most beside it."""
    text = f"bound by {assessed.bound.text}"
    if overhead is None:
        return text
    if overhead.contention:
        return f"{text}; {overhead.share:.0%} is contention: overlapped {overhead.term} slow the kernels beside them"
    if overhead.communication:
        return f"{text}; {overhead.share:.0%} is exposed {overhead.term}"
    return f"{text}; {overhead.share:.0%} is {overhead.term}"


def advice_text(bound: str, helps: list[Help], stacks: bool) -> str:
    """What bounds the step and what would help, in a sentence; `stacks` says whether there were others to try."""
    if helps:
        return f"{bound}. What would help, in tokens/s: {help_text(helps)}"
    tried = ["batch", "microbatch", "recompute", "links"]
    if stacks:
        tried.insert(-1, "stack")
    return f"{bound}; nothing that was tried ({', '.join(tried)}) gains more than {MIN_GAIN:.0%}."


def help_text(helps: list[Help]) -> str:
    """What would help, each change with its gain."""
    if not helps:
        return ""
    changes = []
    for row in helps:
        change = f"{row.change} {row.gain:+.0%}"
        if row.needs:
            change += f" (needs {row.needs})"
        changes.append(change)
    # speedups() names full plans only where nothing else helps, so either all need memory or none does
    if all(row.needs for row in helps):
        changes.insert(0, "nothing that leaves room in memory")
    return f"{'; '.join(changes)}."


def help_row(job: Job, speedup: SpeedUp) -> Help:
    """A change that makes a job faster, with the flags of it."""
    change, flags = _change_and_flags(job, speedup)
    needs = ""
    if not speedup.roomy:
        limit = speedup.job.slice.chip.visible
        needs = f"{speedup.hbm_bytes / limit:.0%} of memory"
        if speedup.hbm_bytes > limit:
            needs = f"{speedup.hbm_bytes / 1e9:.0f} GB a chip"
    return Help(change, speedup.gain, needs, flags)


def _change_and_flags(job: Job, speedup: SpeedUp) -> tuple[str, dict[str, str]]:
    """A change in words, and the flags that make it."""
    # in sequences, as the job counts its batch
    batch = {"batch": f"{speedup.job.batch}seq"}
    plan = {"plan": short_plan(speedup.plan)}
    stack = {"stack": speedup.job.stack.name}
    microbatch = f"microbatch={speedup.plan.microbatch}"
    if speedup.kind == BATCH:
        return f"twice the batch ({speedup.job.tokens:,} tokens)", batch
    if speedup.kind == ONE_PASS:
        return f"twice the batch in one pass ({microbatch})", batch | plan
    if speedup.kind == MICROBATCH:
        return microbatch, plan
    if speedup.kind == NO_RECOMPUTE:
        return "recompute nothing (remat=none)", plan
    if speedup.kind == STACK:
        return f"--stack {speedup.job.stack.name}", stack
    if speedup.kind == FEWER_CHIPS:
        on = str(speedup.job.slice)
        idle = job.slice.chips - speedup.job.slice.chips
        return f"--on {on} ({idle:,} chips idle)", {"on": on} | plan | stack
    # every kind that changes no plan, batch or stack doubles a number of the chip
    assert speedup.knob is not None  # the wires of the chip are the only numbers of it that are tried
    return f"twice the {speedup.knob.title}", {"set": ",".join(f"{path}=2x" for path in speedup.knob.paths)}


def memory_text(assessed: PlanAssessment, advice: PlanAdvice, memory: list[MemoryRow]) -> str:
    """What fills a chip that is too full, and the change that frees most of it."""
    largest = max(memory, key=lambda row: row.bytes)
    start = f"bound by memory, most of it {largest.name} ({largest.bytes / assessed.hbm_bytes:.0%})"
    relief = advice.relief
    if relief is None:
        return f"{start}; no recompute, microbatch or ZeRO of this mesh frees much of it."
    # recompute, smaller microbatches and ZeRO-3 free memory for time
    pace = _pace(relief.step_s / assessed.step_s - 1)
    leaves = f"leaves {relief.hbm_bytes / 1e9:.1f} GB, which"
    if relief.settings == ("offload",):
        settings = ",".join(f"{name}={value}" for name, value in differences(assessed.plan, relief.plan).items())
        # the chips of a host share its memory
        node_bytes = chips_of_host(relief.job.slice) * relief.host_bytes
        return (
            f"{start}: {settings} {leaves} fits, and needs {node_bytes / 1e9:,.0f} GB of memory of each host ({pace}, "
            "an estimate)."
        )
    fits = "fits" if relief.fits else "is still too much"
    return f"{start}: {_relief_change(relief)} {leaves} {fits} ({pace})."


def _relief_change(relief: MemoryRelief) -> str:
    """The settings that change: `fsdp=16 with zero=3 and remat=block`."""
    if not relief.settings:
        return "--numerics benchmark (gradients in bf16, as in published benchmarks)"
    first, *others = (f"{name}={relief.plan[name]}" for name in relief.settings)
    return " with ".join(filter(None, [first, " and ".join(others)]))


def _pace(slower: float) -> str:
    """By how much a step gets longer."""
    percent = signed_percent(slower)  # empty where it rounds to nothing
    return f"step {percent}" if percent else "as fast"


def gradients_text(job: Job, other: OtherNumerics | None) -> str:
    """In what format gradients are added and reduced, and what the other way would change; empty where there is no
    other."""
    if other is None:
        return ""
    numerics = other.job.numerics
    # of the two ways, the one that is not tried here is the one in place
    why = "the software's default" if numerics == "benchmark" else "as in published benchmarks"
    direction = "faster" if other.gain > 0 else "slower"
    text = (
        f"added and reduced in {_gradient_format(job)}, {why}; --numerics {numerics}: in "
        f"{_gradient_format(other.job)}, {abs(other.gain):.1%} {direction}, {other.hbm_bytes / 1e9:.1f}GB"
    )
    return text if other.fits else f"{text}, which does not fit"


def _gradient_format(job: Job) -> str:
    width = job.stack.state.reduce_bytes
    return {2: "bf16", 4: "fp32"}.get(int(width), f"{width:g} bytes")
