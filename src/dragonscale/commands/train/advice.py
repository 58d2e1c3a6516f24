"""What bounds a training step, and what would make it shorter: each change is judged, and named only if it helps.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.training.cost.evaluation import make_job
>>> from dragonscale.training.plan.plan_file import parse_plan
>>> job = make_job(load_model("llama3-8b"), parse_slice("h100:64"), 64, 8192)
>>> helps(job, parse_plan("fsdp=64,remat=block"))[0].change
'recompute nothing (remat=none)'
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.blocks.sheet import signed_percent
from dragonscale.commands.train.train_records import Help, MemoryRow, TermRow
from dragonscale.models.scaling_laws import critical_batch
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice
from dragonscale.plan.ledger import Ledger
from dragonscale.training.advice.codesign import knobs, on_chip, raised
from dragonscale.training.advice.remedies import fewer_chips
from dragonscale.training.cost.evaluation import Job, Verdict, first, judge_one, problems, usual_jobs, with_numerics
from dragonscale.training.cost.step_bound import WAITING, step_bound
from dragonscale.training.cost.step_ledger import WIRES
from dragonscale.training.plan.plan import HOSTED_STATE, Plan, differences, short_plan
from dragonscale.training.plan.stack import NUMERICS, change
from dragonscale.training.search.allowed_space import advice_against
from dragonscale.training.search.headroom import leaves_room
from dragonscale.training.search.legal import illegal, newly_illegal
from dragonscale.training.search.run_kinds import UNNAMED, family
from dragonscale.training.search.space import Space, misfits

WIRED = ("ici.", "dcn.", "levels.")
"""Where the numbers of a chip's wires stand."""
WORTH = 0.02
"""What helps by less is not advised: a prediction is not that sure of itself."""
SHOWN = 3


def worked_terms(ledger: Ledger) -> set[str]:
    """The terms that are work on the chip itself."""
    return {line.term for line in ledger.lines if line.kind not in WAITING}


def bound_text(job: Job, plan: Plan, terms: list[TermRow], ledger: Ledger) -> str:
    """What bounds the step, and what takes most beside it: exposed, or by contention with what it overlaps."""
    total = sum(row.exposed_s for row in terms) or 1.0
    work, bound = worked_terms(ledger), step_bound(ledger, job.slice.chip)
    start = f"bound by {bound.text}"
    others = [row for row in terms if row.name != bound.part and (row.name not in work or row.name == "recompute")]
    lost = max(others, key=lambda row: row.exposed_s, default=None)
    if lost is None or lost.exposed_s < 0.01 * total:
        return start
    share = f"{lost.exposed_s / total:.0%}"
    if lost.name in WIRES and _contended(job, plan, lost):
        return f"{start}; {share} is contention: overlapped {lost.name} slow the kernels beside them"
    return f"{start}; {share} is {'exposed ' if lost.name in WIRES else ''}{lost.name}"


def _contended(job: Job, plan: Plan, row: TermRow) -> bool:
    """Whether most of what a kind of move costs is contention, not waiting: it goes away when hidden transfers slow
    nothing."""
    quiet = judge_one(replace(job, stack=change(job.stack, "overlap", contention=0.0)), plan)
    return quiet.ledger.by("term", "exposed_s").get(row.name, 0.0) < 0.5 * row.exposed_s


def helps(
    job: Job,
    plan: Plan,
    verdict: Verdict | None = None,
    tokens: float | None = None,
    space: Space | None = None,
) -> list[Help]:
    """What would raise the tokens a second of this plan by more than `WORTH`, most first, each judged by itself.
    `tokens` are those of the run, whose critical batch no advice exceeds. With the space that the plan is the best of,
    leaving chips idle is tried too."""
    step_s = first((verdict or judge_one(job, plan)).seconds)
    before = job.tokens / step_s
    found: list[Help] = []
    for attempt in _tries(job, plan, tokens):
        other, changed = attempt.job, attempt.plan
        if not _possible(other, plan, changed) or (other.stack != job.stack and illegal(other, changed)):
            continue
        after = judge_one(other, changed)
        gain = other.tokens / first(after.seconds) / before - 1
        held, limit = first(after.hbm_bytes), other.slice.chip.visible
        if gain > WORTH:
            full = f"{held / 1e9:.0f} GB a chip" if held > limit else f"{held / limit:.0%} of memory"
            needs = "" if leaves_room(other, changed, after) else full
            found.append(Help(attempt.text, gain, needs, attempt.flags))
    fewer = fewer_chips(job, space, step_s / (1 + WORTH)) if space is not None else None
    if fewer is not None:
        idle = job.slice.chips - fewer.job.slice.chips
        text = f"--on {fewer.job.slice} ({idle:,} chips idle)"
        flags = {"on": str(fewer.job.slice), "plan": short_plan(fewer.best.plan), "stack": fewer.job.stack.name}
        found.append(Help(text, step_s / fewer.seconds - 1, flags=flags))
    # what leaves no room in memory can hardly be acted on: told only where nothing else is
    fitting = [one for one in found if not one.needs]
    return sorted(fitting or found, key=lambda one: -one.gain)[:SHOWN]


def _possible(job: Job, plan: Plan, changed: Plan) -> bool:
    """Whether a changed plan divides what it splits, and its stack runs it as well as the plan before."""
    divides = job.batch % (changed.replicas * changed.microbatch) == 0
    advised = advice_against(job, plan) or not advice_against(job, changed)
    return bool(divides and advised and not misfits(job, changed) and not newly_illegal(job, plan, changed))


@dataclass(frozen=True)
class _Try:
    """A change: in words, as flags of a question about the plan, and what it makes of job and plan."""

    text: str
    flags: dict[str, str]
    job: Job
    plan: Plan


def _tries(job: Job, plan: Plan, tokens: float | None = None) -> Iterator[_Try]:
    """Changes that are not in place yet, whatever they bring."""
    rounds = job.batch // (plan.replicas * plan.microbatch) or 1
    twice, wider = replace(job, batch=2 * job.batch), replace(plan, microbatch=2 * plan.microbatch)
    larger = {"batch": f"{twice.batch}seq"}
    if not _exceeds_critical_batch(twice, tokens):
        yield _Try(f"twice the batch ({twice.tokens:,} tokens)", larger, twice, plan)
        if rounds == 1:
            text = f"twice the batch in one pass (microbatch={wider.microbatch})"
            yield _Try(text, larger | {"plan": short_plan(wider)}, twice, wider)
    if rounds > 1:
        yield _Try(f"microbatch={wider.microbatch}", {"plan": short_plan(wider)}, job, wider)
    if plan.remat != "none":
        kept = replace(plan, remat="none")
        yield _Try("recompute nothing (remat=none)", {"plan": short_plan(kept)}, job, kept)
    for other in other_stacks(job):
        yield _Try(f"--stack {other.stack.name}", {"stack": other.stack.name}, other, plan)
    for knob in knobs(job.slice):
        if all(path.startswith(WIRED) for path in knob.paths):
            changes = {"set": ",".join(f"{path}=2x" for path in knob.paths)}
            faster = on_chip(job, raised(job.slice.chip, knob, 2.0))
            yield _Try(f"twice the {knob.title}", changes, faster, plan)


def _exceeds_critical_batch(job: Job, tokens: float | None) -> bool:
    """Whether a batch is more than a run of so many tokens makes use of; of models that start from nothing."""
    if tokens is None or job.tuning.tunes:
        return False
    return job.tokens > critical_batch(count_parameters(job.model).total, tokens)


def other_stacks(job: Job) -> list[Job]:
    """The job with other software that people run there: not with another mode or release of its own."""
    usual = [] if job.stack.name in UNNAMED else usual_jobs(replace(job, auto="named"))
    return [one for one in usual if family(one.stack.name) not in (family(job.stack.name), *UNNAMED)]


def advice_text(bound: str, found: list[Help], stacks: bool) -> str:
    """What bounds the step and what would help, in a sentence; `stacks` says that there are others to try."""
    if found:
        return f"{bound}. What would help, in tokens/s: {help_text(found)}"
    tried = f"batch, microbatch, recompute, {'stack, ' if stacks else ''}links"
    return f"{bound}; nothing that was tried ({tried}) gains more than {WORTH:.0%}."


def help_text(found: list[Help]) -> str:
    """What would help, each with what it brings."""
    each = (f"{one.change} {one.gain:+.0%}{f' (needs {one.needs})' if one.needs else ''}" for one in found)
    start = "nothing that leaves room in memory; " if all(one.needs for one in found) else ""
    return f"{start}{'; '.join(each)}." if found else ""


def gradients_text(job: Job, plan: Plan, verdict: Verdict) -> str:
    """In what gradients are added and reduced, and what the other way would change; nothing where a stack has one."""
    way = next(one for one in NUMERICS if one != job.numerics)
    other = with_numerics(job, way)
    if other.stack == job.stack or plan.dtype == "fp16":
        return ""
    after, (own, others) = judge_one(other, plan), (_format(one) for one in (job, other))
    gain, held = first(verdict.seconds) / first(after.seconds) - 1, first(after.hbm_bytes)
    pace = f"{abs(gain):.1%} {'faster' if gain > 0 else 'slower'}"
    fits = "" if held <= other.slice.chip.visible else ", which does not fit"
    why = "the software's default" if way == "benchmark" else "as in published benchmarks"
    return f"added and reduced in {own}, {why}; --numerics {way}: in {others}, {pace}, {held / 1e9:.1f}GB{fits}"


def _format(job: Job) -> str:
    return {2: "bf16", 4: "fp32"}.get(int(job.stack.state.reduce_bytes), f"{job.stack.state.reduce_bytes:g} bytes")


def memory_advice(job: Job, plan: Plan, memory: list[MemoryRow], verdict: Verdict) -> str:
    """What fills a chip that is too full, and the change that frees most of it."""
    most = max(memory, key=lambda row: row.bytes)
    held, limit = first(verdict.hbm_bytes), job.slice.chip.visible
    start = f"bound by memory, most of it {most.name} ({most.bytes / held:.0%})"
    freed = []
    for text, other, changed in (*_in_benchmark_numerics(job, plan), *_same_software(job, plan)):
        if _possible(other, plan, changed):
            after = judge_one(other, changed)
            freed.append((first(after.hbm_bytes), first(after.seconds), text))
    if all(size > limit for size, _, _ in freed) and (hosted := offload_advice(job, plan, verdict)):
        return f"{start}: {hosted}"
    if not freed or min(freed)[0] > 0.98 * held:
        return f"{start}; no recompute, microbatch or ZeRO of this mesh frees much of it."
    fitting = [one for one in freed if one[0] <= limit]
    size, seconds, text = min(fitting, key=lambda one: one[1]) if fitting else min(freed)
    slower = seconds / first(verdict.seconds) - 1
    enough = "fits" if fitting else "is still too much"
    return f"{start}: {text} leaves {size / 1e9:.1f} GB, which {enough} ({_pace(slower)})."


def _pace(slower: float) -> str:
    """By how much a step changes."""
    percent = signed_percent(slower)
    return f"step {percent}" if percent else "as fast"


def _in_benchmark_numerics(job: Job, plan: Plan) -> Iterator[tuple[str, Job, Plan]]:
    """A plan with gradients as published benchmarks have them, where its software has two ways."""
    benchmark = with_numerics(job, "benchmark")
    if job.numerics != "benchmark" and benchmark.stack != job.stack:
        yield "--numerics benchmark (gradients in bf16, as in published benchmarks)", benchmark, plan


def _same_software(job: Job, plan: Plan) -> Iterator[tuple[str, Job, Plan]]:
    for text, changed in _smaller(plan):
        yield text, job, changed


def offload_advice(job: Job, plan: Plan, verdict: Verdict) -> str:
    """The first offload to the host's memory with which a plan fits, what it needs there and the step it gives; empty
    where none does."""
    if plan.offload in HOSTED_STATE:
        return ""
    least = replace(plan, microbatch=1, remat="block")
    for changed in (plan, least, replace(least, zero=3)):
        for word in HOSTED_STATE:
            hosted = replace(changed, offload=word)
            if not _possible(job, plan, hosted):
                continue
            after = judge_one(job, hosted)
            if problems(job, hosted, after):
                continue
            settings = ",".join(f"{name}={value}" for name, value in differences(plan, hosted).items())
            slower = first(after.seconds) / first(verdict.seconds) - 1
            node = chips_of_host(job.slice) * first(after.ledger.host_bytes)
            return (
                f"{settings} leaves {first(after.hbm_bytes) / 1e9:.1f} GB, which fits, and needs {node / 1e9:,.0f} GB "
                f"of memory of each host ({_pace(slower)}, an estimate)."
            )
    return ""


def chips_of_host(piece: Slice) -> int:
    """Chips of a slice that share a host."""
    return max(1, min(piece.chip.host_chips, piece.chips))


def _smaller(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans of the same mesh that hold less, without what is in place already."""
    if plan.remat != "block":
        yield "remat=block", replace(plan, remat="block")
    if plan.microbatch > 1:
        yield "microbatch=1", replace(plan, microbatch=1)
        yield "microbatch=1 with remat=block", replace(plan, microbatch=1, remat="block")
    if plan.fsdp > 1 and plan.zero < 3:
        yield "zero=3", replace(plan, zero=3)
        yield "zero=3 with remat=block", replace(plan, zero=3, remat="block")
    if plan.data > 1:
        for zero in sorted({plan.zero or 1, 3}):
            sharded = replace(plan, data=1, fsdp=plan.data * plan.fsdp, zero=zero)
            yield f"fsdp={sharded.fsdp} with zero={zero}", sharded
            yield f"fsdp={sharded.fsdp} with zero={zero} and remat=block", replace(sharded, remat="block")
