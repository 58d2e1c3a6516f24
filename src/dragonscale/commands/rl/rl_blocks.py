"""The answer to `dscale rl` laid out: the best way in a few lines, its phases, the other ways."""

import math
import shlex

from dragonscale.blocks.sheet import (
    EXPLAINED,
    Block,
    FactLine,
    Grid,
    NextStep,
    Sheet,
    Title,
    Verbatim,
    amount,
    explained,
    facts,
)
from dragonscale.commands.grids import grid
from dragonscale.commands.questions.flag import written
from dragonscale.commands.rl.rl_records import RlPlanRow, RlReport, RlRunRow
from dragonscale.serving.engine.engine import load_engine
from dragonscale.simulation.rl.frameworks import framework, tables
from dragonscale.training.plan.builds import software_of

# From how far on the step of published runs differs from its phases' sum, both are shown.
MIN_DIFFERENCE = 0.1
# Other ways that are shown without `--explain`.
MAX_OTHERS = 3


def rl_blocks(report: RlReport, detail: bool) -> Sheet:
    """The whole answer."""
    work = (
        f"{report.prompts:,} prompts x {report.samples:,} answers, prompts of {report.prompt:,} tokens, answers of "
        f"{report.mean_output:,.0f} on average and {report.output:,} at most"
    )
    if report.method:
        work = f"{report.method}, {work}"
    best = report.best
    tone = "bad" if best is None else "good"
    title = Title(f"{report.algorithm.upper()} of {report.model} on {report.slice}", work, verdict_text(report), tone)
    if best is None:
        return Sheet((title,))
    blocks: list[Block] = [title, _summary(report, best)]
    if detail:
        blocks.append(grid("rl-phases", best.phases))
    plans = report.plans if detail else _shown_plans(report.plans)
    if len(plans) > 1:
        blocks.append(explained(_others(plans)))
    for text in report.files.values():
        blocks.append(Verbatim(text.rstrip("\n")))
    return Sheet((*blocks, *_next(report, best)))


def verdict_text(report: RlReport) -> str:
    """Whether the step fits, and how long it takes."""
    best = report.best
    if best is None:
        return _nothing(report)
    tight = ", tight in memory" if best.tight else ""
    step = f"{amount(best.likely_s, 's')} a step, {best.likely_tokens:,.0f} tokens/s per chip{tight}"
    return f"Fits: {best.mode} with {best.stack} on {report.slice}, {step}."


def _shown_plans(plans: list[RlPlanRow]) -> list[RlPlanRow]:
    """The best way and a few others; then the first of every mode that is not among them."""
    shown: list[RlPlanRow] = []
    modes: set[str] = set()
    for rank, plan in enumerate(plans):
        if rank <= MAX_OTHERS or plan.mode not in modes:
            shown.append(plan)
        modes.add(plan.mode)
    return shown


def _summary(report: RlReport, best: RlPlanRow) -> Block:
    chip = report.slice.partition(":")[0]
    helps, slower = _changes_text(report)
    return facts(
        ("plan", f"{best.mode}, {_where(best, chip)}, {best.stack} (staleness {best.staleness:g})", "key"),
        ("trainer", f"{best.train} ({best.train_stack})"),
        # the engine without its changed settings
        (
            "engine",
            f"{best.replicas:,} x {best.rollout} ({best.engine.partition(',')[0]}), weights sent: {best.transfer}",
        ),
        ("step", _step(best), "key"),
        ("memory", _memory(best), "warn" if best.tight else ""),
        ("cost", _cost(best, chip)),
        ("bound by", _bound(report, best), "key"),
        ("would help", helps),
        FactLine("others", slower, level=EXPLAINED),
        ("phases", _phases(best)),
        ("simulated", _simulated(report.run), "key") if report.run else None,
        FactLine(
            "error",
            _error(best.stack, {plan.stack for plan in report.plans}),
            brief=_error(best.stack, set(), brief=True),
        ),
        ("release", _releases(best)),
    )


def _where(best: RlPlanRow, chip: str) -> str:
    """Which chips train and which generate."""
    if best.mode == "colocated":
        return f"on all {best.train_chips:,} chips in turns"
    kind = ""
    if best.rollout_chip != chip:
        kind = f" {best.rollout_chip}"
    return f"{best.train_chips:,} chips train, {best.rollout_chips:,}{kind} generate"


def _step(best: RlPlanRow) -> str:
    """The step that published runs suggest with its band; that of its phases alone where they differ much."""
    band = f"{amount(best.step_low_s, 's')} to {amount(best.step_high_s, 's')}"
    text = f"{amount(best.likely_s, 's')} expected ({band}), {best.likely_tokens:,.0f} tokens/s/chip"
    if abs(best.likely_s / best.step_s - 1) >= MIN_DIFFERENCE:
        text += f"; its phases alone take {amount(best.step_s, 's')}"
    return text


def _memory(best: RlPlanRow) -> str:
    tight = ", tight" if best.tight else ""
    trainer, limit = amount(best.train_hbm_bytes, "bytes"), amount(best.hbm_limit_bytes, "bytes")
    if best.engine_stays_bytes:
        return (
            f"trainer {trainer} and engine {amount(best.engine_stays_bytes, 'bytes')}, which stays, of {limit}{tight}"
        )
    trainer = f"trainer {trainer} of {limit}{tight}"
    engine = f"engine {amount(best.rollout_hbm_bytes, 'bytes')} of {amount(best.rollout_limit_bytes, 'bytes')}"
    if best.offloaded_bytes:
        engine += f", {amount(best.offloaded_bytes, 'bytes')} a chip move to the host in between"
    if best.mode == "colocated":
        engine += f"; a host {amount(best.host_bytes, 'bytes')} of {amount(best.host_limit_bytes, 'bytes')}"
    return f"{trainer}, {engine}"


def _bound(report: RlReport, best: RlPlanRow) -> str:
    tail = best.tail_s / max(best.phase("generation"), 1e-9)
    if tail < 0.1:
        return report.bound_by
    return f"{report.bound_by}; the last 2% of answers take {tail:.0%} of generation"


def _changes_text(report: RlReport) -> tuple[str, str]:
    """Changes that make the step faster, and those that do not."""
    faster: list[str] = []
    slower: list[str] = []
    for change in report.changes:
        if change.gain > 0:
            faster.append(f"{change.what}: {change.gain:+.0%} tokens/s")
        else:
            slower.append(f"{change.what}: {change.gain:.0%} tokens/s")
    return "; ".join(faster), "; ".join(slower)


def _phases(best: RlPlanRow) -> str:
    parts: list[str] = []
    for phase in best.phases:
        if phase.seconds > 0:
            hidden = ""
            if not phase.exposed_s:
                hidden = " (hidden)"
            parts.append(f"{phase.name} {amount(phase.seconds, 's')}{hidden}")
    return ", ".join(parts)


def _cost(best: RlPlanRow, chip: str) -> str:
    if best.cost_usd_per_step is None:
        prices = ",".join(f"{name}=$2/h" for name in dict.fromkeys((chip, best.rollout_chip)))
        return f"not every chip has a known price: --price {prices} says it"
    # of a step as published ones went
    usd = best.cost_usd_per_step * best.likely_s / best.step_s
    return f"${usd:,.2f} a step, ${usd * 1000:,.0f} for 1,000"


def _simulated(run: RlRunRow) -> str:
    lost = ""
    if run.failures or run.again:
        lost = f", {run.failures:,} failures ({run.again:,} answers begun again)"
    return (
        f"{run.steps:,} steps in {run.hours:,.1f} h, {amount(run.step_s, 's')} each (9 of 10 within "
        f"{amount(run.p90_step_s, 's')}); weights {run.staleness_mean:.1f} steps old on average, {run.staleness_max} "
        f"at most; {run.queue_mean:,.0f} answers queued; engine works {run.engine_busy:.0%} of the time, trainer "
        f"{run.trainer_busy:.0%}{lost}"
    )


def _releases(best: RlPlanRow) -> str:
    """The releases of the trainer and of the engine that the way describes."""
    trainer = software_of(best.train_stack) or f"no release of {best.stack} in particular"
    return "; ".join(filter(None, [trainer, load_engine(best.engine).described_release]))


def _error(stack: str, stacks: set[str], brief: bool = False) -> str:
    errors = framework(stack).errors
    if stack in tables()["errors"]:
        whose = f"steps of {stack}"
    else:
        whose = f"steps (none of {stack})"
    others = ", ".join(f"{1 + framework(name).errors.middle:.2f} of {name}" for name in sorted(stacks - {stack}))
    band = f"{1 + errors.low:.2f} to {1 + errors.high:.2f} times their phases"
    text = f"of {errors.runs} published {whose} four in five took {band}"
    if brief:
        return f"{text}."
    usual = f"{1 + errors.middle:.2f} times in the middle, which is the step expected here"
    if others:
        return f"{text}, {usual} ({others})."
    return f"{text}, {usual}."


def _others(plans: list[RlPlanRow]) -> Grid:
    def chips(plan: RlPlanRow) -> str:
        if plan.mode == "colocated":
            return f"{plan.train_chips}"
        return f"{plan.train_chips}+{plan.rollout_chips}"

    return grid("rl-plans", plans, own={"chips": chips, "fits": lambda plan: "yes" if plan.feasible else "no"})


def _nothing(report: RlReport) -> str:
    """That nothing fits: what is missing, and what would help."""
    if not report.plans or math.isinf(report.plans[0].hbm_bytes):
        why = report.shortage or "no plan of the trainer or the engine leaves room"
    else:
        why = _missing(report.plans[0])
    if getattr(report.asked, "bare", False):
        return f"No slice that was tried holds the step, the largest {report.slice}; there {why}."
    text = f"Does not fit {report.slice}: {why}."
    for remedy in report.remedies:
        text += f" It fits with {remedy.what}: {remedy.plan}."
    if report.fits_on:
        text += f" {report.fits_on} holds it as it is."
    elif not report.remedies:
        text += " None of the larger slices that were tried holds it."
    return text


def _missing(row: RlPlanRow) -> str:
    """What the nearest way needs beyond what there is."""
    if row.host_bytes > row.host_limit_bytes and row.hbm_bytes <= row.hbm_limit_bytes:
        return (
            f"the chips hold it, but a host needs {amount(row.host_bytes, 'bytes')} of memory "
            f"({amount(row.host_worker_bytes, 'bytes')} for each chip's worker, and the checkpoint as it is read) and "
            f"has {amount(row.host_limit_bytes, 'bytes')} to use; give it more memory"
        )
    need, limit = amount(row.hbm_bytes, "bytes"), amount(row.hbm_limit_bytes, "bytes")
    parts = ""
    if row.engine_stays_bytes:
        parts = (
            f": trainer {amount(row.train_hbm_bytes, 'bytes')} beside the engine's "
            f"{amount(row.engine_stays_bytes, 'bytes')}, which stays"
        )
    return f"the nearest, {row.mode}, {row.train}, needs {need} of {limit} on a chip{parts}"


def _next(report: RlReport, best: RlPlanRow) -> list[Block]:
    question = getattr(report.asked, "question", None)
    if question is None:
        return []
    model = shlex.quote(written(question.model))
    command = (
        f"dscale serve {model} --on {best.rollout_chip}:{best.rollout_chips // best.replicas} --prompt {report.prompt} "
        f"--output {report.mean_output:.0f} --engine {best.engine} --plan {best.rollout}"
    )
    return [NextStep(command, "More with --explain. Next, the engine alone:")]
