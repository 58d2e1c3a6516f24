"""`dscale train` laid out as blocks: what to run, how long it takes, what bounds it and what to change; then time,
memory, other plans."""

from dataclasses import replace
from itertools import count
from typing import Any

from dragonscale.blocks import sheet as laid
from dragonscale.blocks.sheet import amount, facts, folded, signed_percent
from dragonscale.commands import grids
from dragonscale.commands.asked_chips import kernels_text
from dragonscale.commands.train.advice import bound_text, help_text
from dragonscale.commands.train.plan_text import (
    abbreviations_text,
    flop_rate_text,
    host_memory_text,
    memory_parts_text,
    memory_text_of,
    mesh_drawing,
    releases_text,
    split_text,
    taken_text,
)
from dragonscale.commands.train.run_text import goodput_facts, goodput_text, money_text, run_text, short_number
from dragonscale.commands.train.train_records import PlanReport, SliceRow, StackRow, TrainReport, UnfitStack
from dragonscale.training.advice.plan_advice import PlanAnswer
from dragonscale.training.plan.builds import software_of
from dragonscale.training.plan.plan import short_plan
from dragonscale.training.search.stack_search import TIE_TOLERANCE

# Terms of a smaller share of the step are left to `--explain`.
MIN_SHARE = 0.002
MIN_MEMORY_SHARE = 0.01
MAX_CHANGES = 6
# Causes of a slow step that the short answer has.
MAX_SUSPECTS = 3
# Parts of memory that the short answer of fine-tuning names: they fill a line.
MAX_BRIEF_PARTS = 3
# Sentences on what would fit that the short answer has.
MAX_REMEDIES = 5
# Rows of slices that the short answer has.
MAX_SLICES = 5
MAX_FRONT_ROWS = 12


def train_blocks(report: TrainReport, detail: bool) -> laid.Sheet:
    """The whole answer: the summary first, then how it comes about."""
    if not report.plans:
        notes = [note for note in report.notes if note != report.verdict]
        shown, further = notes[:MAX_REMEDIES], notes[MAX_REMEDIES:]
        blocks: list[laid.Block] = [_title(report), laid.Prose("\n".join(shown), "bad")]
        if further:
            blocks.append(laid.Prose("\n".join(further), "bad", laid.EXPLAINED))
        return laid.Sheet((*blocks, *map(laid.explained, _slices(report))))
    first = report.plans[0]
    answered: PlanAnswer | None = report.asked.answered if report.asked else None
    if answered is not None and answered.assessed.job.slice.chips != first.plan.chips:
        # what a plan for other chips would take is no answer to anything
        problem_facts = facts(
            ("given", short_plan(first.plan)), *_problems(first), ("best plan", report.comparison, "warn")
        )
        return laid.Sheet((_title(report), problem_facts, *_changes(report), *_after(report)))
    blocks = [_title(report), summary(report, first, answered), laid.explained(time_stack(first, detail))]
    if detail or first.tight or not first.feasible:
        blocks.append(laid.explained(memory_stack(first, detail)))
    if report.measured is not None:
        blocks.append(laid.Prose(report.measured.text, level=laid.EXPLAINED))
        if report.measured.suspects:
            suspects = grids.grid("train-suspects", report.measured.suspects)
            blocks.append(replace(suspects, brief_rows=MAX_SUSPECTS))
    if detail:
        blocks.append(laid.Verbatim(mesh_drawing(first.plan)))
        blocks.append(grids.grid("train-terms", first.terms))
        blocks.append(details(report, first))
        if report.goodput:
            blocks.append(goodput_facts(report.goodput))
    if report.scaling:
        blocks.append(scaling_table(report))
    if len(report.plans) > 1 and (detail or not report.scaling):
        blocks.append(laid.explained(plans_table(report)))
    return laid.Sheet((*blocks, *_changes(report), *_after(report, detail)))


def _changes(report: TrainReport) -> list[laid.Block]:
    """The single changes of a given plan that bring most."""
    if not report.changes:
        return []
    return [laid.explained(grids.grid("train-changes", report.changes[:MAX_CHANGES]))]


def _after(report: TrainReport, detail: bool = False) -> list[laid.Block]:
    """What follows the plan: slices, better hardware, the front of time against memory, notes."""
    blocks: list[laid.Block] = []
    scaled = {row.slice for row in report.scaling}
    # with --scaling over the same slices the first table says it all
    if not {row.slice for row in report.slices} <= scaled:
        blocks += _slices(report)
    if report.codesign:
        rows = replace(grids.grid("train-codesign", report.codesign.rows), brief_rows=MAX_SLICES)
        blocks += [rows, laid.Prose(report.codesign.advice, level=laid.EXPLAINED)]
        if report.codesign.overtakes:
            blocks.append(laid.Prose(" ".join(report.codesign.overtakes), level=laid.EXPLAINED))
    if detail and report.pareto:
        blocks.append(front_table(report))
    if report.notes:
        blocks.append(laid.Prose("\n".join(report.notes), "dim", laid.EXPLAINED))
    return blocks


def _slices(report: TrainReport) -> list[laid.Block]:
    return [replace(slices_table(report.slices), brief_rows=MAX_SLICES)] if report.slices else []


def _problems(first: PlanReport) -> list[tuple[str, str, str]]:
    return [("cannot run", f"{problem}.", "bad") for problem in first.problems]


def _title(report: TrainReport) -> laid.Title:
    """The model and slice, and below them the step and the stack."""
    work = report.workload
    size = f"{amount(work.parameters - work.adapter_parameters, 'count')} parameters"
    if work.adapter_parameters:
        size += f" +{amount(work.adapter_parameters, 'count')} in adapters"
    for part, parameters in work.left_out.items():
        size += f"; {amount(parameters, 'count')} of {part} frozen"
    sequences = f"{laid.several(work.sequences, 'sequence')} of {work.seq:,}"
    if work.documents:
        sequences += f" packed with documents of {work.documents:,} (weighted by length)"
    stack = f"stack {work.stack}"
    if work.unbuilt:
        stack = f"a what-if on {stack}"  # what its trainer would do if it built the model
    if work.stack_why:
        stack += f" (auto: {work.stack_why}{_other_usual_stack(report)})"
    elif work.unbuilt:
        stack += f" ({work.unbuilt})"
    step = f"{work.batch_tokens:,} tokens a step ({sequences}), {work.dtype}"
    if work.method not in ("", "full"):
        step = f"{work.method}, {step}"
    brief_stack = f"stack {work.stack}"
    if work.unbuilt or work.stack == "generic":  # why it is no trainer's answer
        brief_stack = stack
    tone = "bad" if report.exit_code else "good"
    if report.measured is not None and not report.measured.within_band:
        tone = "warn"
    return laid.Title(
        f"{report.model} ({size}) on {report.slice}",
        f"{step}, {stack}",
        report.verdict,
        tone,
        f"{step}, {brief_stack}",
    )


def _other_usual_stack(report: TrainReport) -> str:
    """Which other stack is as usual there, and how it differs for this job."""
    if len(report.stacks) < 2:
        return ""
    chosen, other = report.stacks[:2]
    if not other.usual:
        return ""
    if other.tight and not chosen.tight:
        how = "with less memory left"
    elif abs(other.step_s / chosen.step_s - 1) < TIE_TOLERANCE:
        how = "as fast"
    else:
        how = "slower"
    return f"; so is {other.stack}, {how} here"


def details(report: TrainReport, first: PlanReport) -> laid.Facts:
    """What stands behind the summary: bounds, formats of gradients, what was searched and who takes the plan."""
    searched = None
    if report.searched > 1 and report.better is None:
        searched = f"{report.feasible:,} of {report.searched:,} plans are feasible"
        if report.infeasible:
            reasons = ", ".join(f"{plans:,} {reason}" for reason, plans in report.infeasible.items())
            searched += f"; infeasible: {reasons}"
    return grids.summary(
        "train-details",
        first,
        split=split_text(first.plan),
        steps=run_text(report, first),
        searched=searched,
        taken=taken_text(report, first),
    )


def summary(report: TrainReport, first: PlanReport, answered: PlanAnswer | None) -> laid.Facts:
    """What to run, in ten lines."""
    is_given = report.better is not None or report.searched == 1
    answer = ("answer", report.answer.removesuffix("."), "key") if report.answer else None
    label = "given" if is_given else "plan"
    head = facts(
        answer,
        (label, short_plan(first.plan), "key"),
        ("", abbreviations_text(first.plan), "dim"),
        *_problems(first),
    )
    memory = memory_text_of(first)
    tuned = report.asked is not None and report.asked.job.tuning.tunes
    kernels = "".join(f"; {text}" for text in [_kernels(report)] if text)
    slow_end = ""
    if first.large_runs:
        late = first.step_high_s / first.step_s - 1
        slow_end = f"; the step's slow end, {late:+.0%}, is of large runs of 2023 and 2024 (--explain)"
    rest = grids.summary(
        "train-facts",
        first,
        memory=memory.sentence,
        tone=memory.tone,
        parts=memory_parts_text(first),
        rate=flop_rate_text(first),
        releases=releases_text(first),
        host=host_memory_text(first),
        run=goodput_text(report) or run_text(report, first),
        bound=_bound(first, answered).removeprefix("bound by "),
        change=help_text(first.helps),
        stacks=stacks_text(report.stacks, report.unfit_stacks),
        news=stacks_text(_faster_stacks(report), report.unfit_stacks, brief=True),
        first_change=help_text(first.helps[:1]),
        kernels=kernels,
        software=software_of(report.workload.stack),
        judged=report.comparison,
        unchanged=_unchanged(report, first),
        slower=slow_end,
        band=_band_brief(first, tuned=tuned, kernels=kernels),
    )
    hidden: set[str] = set()
    if not report.unfit_stacks and not _faster_stacks(report):  # slower ones are no news
        hidden.add("other stacks")
    if report.measured is not None:  # what was asked is whether the run is normal
        hidden |= {"best plan", "would help"}
        if report.measured.suspects:  # whose table takes the room
            hidden |= {"of it", "model FLOPs", "older releases"}
    if tuned:  # memory has a line of its own, and the line of the job names the stack
        hidden |= {"of it", "software"}
    if not first.logged_mfu and first.devices == 1 and not is_given:  # the MFU says as much
        hidden.add("model FLOPs")
    parts = _memory_parts(first) if tuned else []
    limits = facts(
        laid.FactLine("of memory", ", ".join(parts), brief=", ".join(parts[:MAX_BRIEF_PARTS])),
        ("limits", " ".join(report.margins)),
        ("fits with", "" if first.feasible or not tuned else _remedies_text(report)),
    )
    rows = (*head.rows, *rest.rows, *limits.rows)
    return laid.Facts(tuple(laid.explained(row) if row.label in hidden else row for row in rows))


def _remedies_text(report: TrainReport) -> str:
    """The flags with which a job fits whose given plan does not."""
    texts: list[str] = []
    for row in report.remedies:
        flags = " ".join(f"--{name} {value}" for name, value in row.flags.items())
        texts.append(f"{flags} ({row.plan})")
    return "; ".join(texts)


def _band_brief(first: PlanReport, *, tuned: bool, kernels: str) -> str:
    """What the error band rests on, in the short answer. Where no run of fine-tuning is like this one, that fact
    alone: which runs the wider band is of takes four lines, which `--explain` has."""
    if tuned and first.band.startswith("no ") and "is in our data" in first.band:
        return "no run like this is published, so the band is a wider one"
    return f"{first.band}{kernels}"


def _memory_parts(first: PlanReport) -> list[str]:
    """The parts of memory of at least a fiftieth, the largest first: what people ask of fine-tuning."""
    parts = sorted(first.memory, key=lambda row: -row.bytes)
    return [f"{row.name} {row.bytes / 1e9:.1f}GB" for row in parts if row.bytes >= first.hbm_bytes / 50]


def _bound(first: PlanReport, answered: PlanAnswer | None) -> str:
    """What bounds the step, without what would help, which has a line of its own."""
    if first.helps and answered is not None and answered.advice is not None:
        return bound_text(answered.assessed, answered.advice.overhead)
    return first.advice


def _faster_stacks(report: TrainReport) -> list[StackRow]:
    """The stack of the answer and those that are faster; none where it is the fastest."""
    if not report.stacks:
        return []
    current, *others = report.stacks
    faster = [row for row in others if row.step_s * (1 + TIE_TOLERANCE) < current.step_s]
    return [current, *faster] if faster else []


def _kernels(report: TrainReport) -> str:
    """Whose kernels stand for those of the chip."""
    if report.asked is None:
        return ""
    chips = {chip.name: chip for chip, _ in report.asked.job.targets}
    chip = chips.get(report.slice.partition(":")[0])
    return kernels_text(chip) if chip is not None else ""


def _unchanged(report: TrainReport, first: PlanReport) -> str | None:
    """The chip without what was changed of it, against the answer."""
    before = report.unchanged
    if before is None:
        return None
    gain = before.step_s / first.step_s - 1
    step = amount(before.step_s, "s")
    return f"{before.slice}: {step} with {before.plan}; the change brings {gain:+.1%} tokens/s"


def stacks_text(stacks: list[StackRow], unfit: list[UnfitStack], brief: bool = False) -> str:
    """The stacks that were not taken, against the one that was."""
    parts = []
    for row in stacks[1:]:
        longer = signed_percent(row.step_s / stacks[0].step_s - 1)
        pace = "as fast"
        if longer:
            pace = f"step {longer}"
        reasons = [amount(row.step_s, "s")]
        if row.mostly and not brief:
            reasons.append(f"mostly {row.mostly}")
        if row.tight:
            reasons.append("leaves little memory")
        if not row.usual:
            reasons.append("less usual there")
        parts.append(f"{row.stack}: {pace} ({', '.join(reasons)})")
    parts += [f"{row.stack}: {row.why}" for row in unfit]
    return "; ".join(parts)


def time_stack(first: PlanReport, detail: bool) -> laid.StackedBar:
    """What the step waits for, with what overlaps beside it."""
    step_s = sum(row.exposed_s for row in first.terms) or 1.0
    # the line of the summary has room for the main terms; `folded` joins what is left out
    least_s = 0.0 if detail else MIN_SHARE * first.step_s
    parts = []
    for row in first.terms:
        if row.exposed_s <= least_s:
            continue
        hidden_s = row.expected_s - row.exposed_s
        note = ""
        if hidden_s > MIN_SHARE * step_s:
            note = f"+{amount(hidden_s, 's')} overlapped"
        parts.append(laid.BarPart(row.name, row.exposed_s, amount(row.exposed_s, "s"), note))
    legend = "list" if detail else "line"
    return laid.StackedBar("time", folded(parts, "s"), step_s, amount(first.step_s, "s"), legend)


def memory_stack(first: PlanReport, detail: bool) -> laid.StackedBar:
    """What fills the HBM of the fullest chip."""
    limit = first.hbm_limit_bytes
    least_bytes = 0.0 if detail else MIN_MEMORY_SHARE * limit
    rows = sorted((row for row in first.memory if row.bytes > least_bytes), key=lambda row: -row.bytes)
    parts = [laid.BarPart(row.name, row.bytes, f"{row.bytes / 1e9:.1f}GB") for row in rows]
    memory = memory_text_of(first)
    return laid.StackedBar("memory", folded(parts, "bytes"), limit, memory.used, "line", memory.tone)


PLAN_COLUMN = {"plan": lambda row: short_plan(row.plan)}


def plans_table(report: TrainReport) -> laid.Grid:
    """The recommended plan and others, each against the first."""
    best_s = report.plans[0].step_s
    ranks = count(1)
    columns = {
        "#": lambda _: next(ranks),
        "": (lambda row: signed_percent(row.step_s / best_s - 1, 1), ""),
        "memory": (lambda row: f"{row.hbm_bytes / 1e9:.0f}GB{' tight' if row.tight else ''}", ""),
        "by": _taken_by,
    }
    without = () if any(map(_taken_by, report.plans)) else ("by",)
    return grids.grid("train-plans", report.plans, own=columns | PLAN_COLUMN, without=without)


def _taken_by(row: PlanReport) -> str:
    """Which of our commands take a plan, as the foot of the table spells them."""
    if not row.runnable:
        return ""
    return "rv" if row.verifiable else "r"


def slices_table(rows: list[SliceRow]) -> laid.Grid:
    """The recommended plan on each slice, best first; what has none says why."""
    columns: dict[str, Any] = {"plan": lambda row: f"{row.plan or row.note}{', tight' if row.tight else ''}"}
    if all(row.days is None for row in rows):
        return grids.grid("train-slices", rows, own=columns)
    columns["cost"] = lambda row: None if row.cost_usd is None else money_text(row.cost_usd)
    columns["days"] = _days_column
    return grids.grid("train-runs", rows, own=columns)


def _days_column(row: SliceRow) -> str | None:
    if row.days is None:
        return None
    if row.days < 1:
        return short_number(row.days)
    return f"{row.days:,.1f}"


def front_table(report: TrainReport) -> laid.Grid:
    """Time against memory, evenly thinned to `MAX_FRONT_ROWS`."""
    memory = {"memory": (lambda row: f"{row.hbm_bytes / 1e9:.1f}GB", "")}
    # every so manyth row, so that the whole front stays in view
    stride = -(-len(report.pareto) // MAX_FRONT_ROWS)  # rounded up
    return grids.grid("train-front", report.pareto[::stride], own=memory | PLAN_COLUMN)


def scaling_table(report: TrainReport) -> laid.Grid:
    """The best plan of each slice, with bars of its tokens a second."""
    rows = report.scaling
    # efficiency is 1 on the slice that the others are compared with
    base = min(rows, key=lambda row: abs((row.efficiency or 0.0) - 1)).slice
    fastest = max((row.tokens_per_s or 0.0) for row in rows) or 1.0
    columns = {
        "step": (lambda row: "no fit" if row.step_s is None else row.step_s, "s"),
        "bound by": lambda row: row.bound_by or "",
        "tokens/s": lambda row: (row.tokens_per_s or 0.0) / fastest,
    }
    return grids.grid("train-scaling", rows, own=columns, foot=f"scaling: tokens/s per chip over those on {base}")
