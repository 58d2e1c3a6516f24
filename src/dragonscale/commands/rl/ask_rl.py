"""The answer to `dscale rl`: the question read, every way judged, what bounds the best and what would be better."""

from dataclasses import dataclass, replace

from dragonscale.commands.asked_chips import asked_chips
from dragonscale.commands.given import target_of
from dragonscale.commands.questions.flag import check_limits, written
from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.commands.record import Face, bind, shared
from dragonscale.commands.rl.rl_export import checked_target, exported, plan_of, with_config
from dragonscale.commands.rl.rl_records import RlChange, RlReport, plan_row, run_row
from dragonscale.commands.rl.rl_sheet import rl_sheet
from dragonscale.commands.train.lengths import read_lengths
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.hardware.prices import priced_targets
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import context_refusal, format_refusal
from dragonscale.simulation.perfetto import save_trace
from dragonscale.simulation.rl.frameworks import MODES, Framework, framework
from dragonscale.simulation.rl.lengths import SPREAD, AnswerLengths, measured_lengths
from dragonscale.simulation.rl.run import RunTerms, run_trace, simulate_run
from dragonscale.simulation.rl.step import RlStep, judge_step
from dragonscale.simulation.rl.ways import AHEAD, RATIOS, Choices, search_steps
from dragonscale.simulation.rl.work import RlWork, work_of
from dragonscale.training.advice.inverse import least_chips
from dragonscale.training.advice.scaling import slice_sizes
from dragonscale.training.cost.evaluation import make_job

USUAL = ("nemo-rl", "verl")
"""The frameworks that are weighed where none is named: the two with most published steps."""
GAIN = 0.03
"""What a change must gain to be told."""
FEW = 0.1
"""The part of answers that a lower cap may cut off: more of them would be another task."""
DTYPES = ("bf16", "fp8")
MOST_CHIPS, SIZES_TRIED = 65_536, 5
"""Slices that are looked for where a chip is named without a number: at most so large, and so many of them."""
MOST = 65_536
"""Answers of a step: several times the largest that are published."""


@dataclass(frozen=True)
class RlAsked:
    """A question understood."""

    question: RlQuestion
    work: RlWork
    piece: Slice
    frameworks: list[Framework]
    choices: Choices
    terms: RunTerms | None = None
    best: RlStep | None = None
    bare: bool = False
    """Whether a chip was named without a number."""


def read_question(question: RlQuestion, listener: Listener) -> RlAsked:
    """Check every flag; what cannot be used is refused in one sentence. Of a chip without a number the slice is the
    smallest that could hold weights and optimizer."""
    check_effect(question.set, "training", "serving")
    check_limits(question)
    for name, example in (("model", "llama3-8b"), ("on", "--on h100:64")):
        if not written(getattr(question, name)).strip():
            raise InputError(
                f"Say which {'chips' if name == 'on' else name}, such as {example}; or give --plan CONFIG."
            )
    model = load_model(with_assumed(question.model, question.assume, question.family))
    chip, piece = _target(question, question.on, listener)
    bare = piece is None
    piece = piece or _slices_from_least(model, chip)[0]
    counts, prompt = (question.prompts, question.samples), question.prompt.tokens(listener)
    work = work_of(model, question.algorithm, *counts, prompt, _lengths(question, listener), question.updates)
    if work.answers > MOST:
        raise InputError(f"A step has {work.answers:,} answers, --prompts times --samples; it has at most {MOST:,}.")
    if work.answers < question.updates:
        raise InputError(f"--updates is {question.updates:,}, more than the {work.answers:,} answers of a step.")
    reference = work.reference if question.reference is None else question.reference
    reward = _passes(model, question.reward) if written(question.reward).strip() else 0.0
    work = replace(work, reference=reference, reward_s=question.reward_s.read(0.0), reward_passes=reward)
    work = replace(work, turns=question.turns, tool_s=question.tool_s.read(0.0), oversample=question.oversample)
    other = written(question.rollout_on).strip()
    choices = replace(
        _choices(question), pool=_counted_slice(question, question.rollout_on, listener) if other else None
    )
    frameworks = _frameworks(question, piece, listener)
    plan = ServingPlan(weights=choices.dtype, compute=choices.dtype)
    generating = (choices.pool or piece).chip
    if all(format_refusal(row.engine, generating, model, plan) for row in frameworks):
        near = "" if choices.dtype == DTYPES[0] else f"; take --rollout-dtype {DTYPES[0]}"
        raise InputError(f"{frameworks[0].engine} does not generate in {choices.dtype} on {generating.title}{near}.")
    if why := context_refusal(model, prompt, work.lengths.cap):
        raise InputError(f"{why}.")
    return RlAsked(question, work, piece, frameworks, choices, _terms(question), bare=bare)


def _target(question: RlQuestion, chips: object, listener: Listener) -> tuple[Chip, Slice | None]:
    """The chip of a flag, and the slice of it where one is named."""
    target = target_of(asked_chips(chips, question.set), listener)  # pyright: ignore[reportArgumentType]
    (found,), strange = priced_targets(question.price, [target], question.pricing, question.owned)
    for note in strange:
        listener.note(note)
    return found


def _counted_slice(question: RlQuestion, chips: object, listener: Listener) -> Slice:
    chip, piece = _target(question, chips, listener)
    if piece is None:
        named = written(chips)
        raise InputError(f"--rollout-on is {shorten(named)}; write how many chips, such as {chip.name}:8.")
    return piece


def _slices_from_least(model: Transformer, chip: Chip) -> list[Slice]:
    """Slices of a chip, from the smallest whose memory could hold weights and optimizer on."""
    sizes = slice_sizes(chip, MOST_CHIPS)
    job = make_job(model, sizes[-1], 1, model.context or 1)
    least = least_chips(job, chip, deadline=None, tokens=None)
    return [piece for piece in sizes if piece.chips >= least][:SIZES_TRIED] or sizes[-1:]


def _terms(question: RlQuestion) -> RunTerms | None:
    """What is simulated; None without --steps."""
    if question.steps is None:
        return None
    if question.oversample > 1:
        raise InputError("A run of --steps is simulated without --oversample; leave one of them out.")
    engines: list[tuple[int, int]] = []
    for part in filter(None, question.engines.strip().split(",")):
        step, _, count = part.partition(":")
        if not (step.strip().isdigit() and count.strip().isdigit() and int(count)):
            raise InputError(
                f"--engines is {shorten(question.engines)}; write steps and replicas, such as 50:12,100:8."
            )
        engines.append((int(step), int(count)))
    return RunTerms(question.steps, question.seed, question.mtbf.read(0.0), engines=tuple(engines))


def _lengths(question: RlQuestion, listener: Listener) -> AnswerLengths:
    cap = question.output.tokens(listener)
    if question.lengths.strip():
        if question.mean_output.strip() or question.spread is not None:
            raise InputError("--lengths has the lengths of answers; leave out --mean-output and --spread.")
        return measured_lengths([float(one) for one in read_lengths(question.lengths)], cap)
    spread = SPREAD if question.spread is None else question.spread
    if question.mean_output.strip():
        return AnswerLengths(question.mean_output.tokens(listener), cap, spread)
    mean = max(cap // 2, 1)
    listener.note(f"Answers of {mean:,} tokens on average are taken, half of --output; --mean-output says otherwise.")
    return AnswerLengths(mean, cap, spread)


def _passes(model: Transformer, reward: object) -> float:
    """A forward pass of the reward model over one of the policy."""
    work, other = Workload(1, 1024, 1024), load_model(reward)  # pyright: ignore[reportArgumentType]
    own, theirs = (float(sum(forward_flops(one.program(), work).values())) for one in (model, other))
    return theirs / own


def _frameworks(question: RlQuestion, piece: Slice, listener: Listener) -> list[Framework]:
    name = question.stack.strip().lower()
    name = checked_target(question) or name if name == "auto" else name
    if name != "auto":
        return [framework(name)]
    if isinstance(piece.chip.network, Torus):
        listener.note("The frameworks that are known run on GPUs; --stack generic is taken.")
        return [framework("generic")]
    return [framework(one) for one in USUAL]


def _choices(question: RlQuestion) -> Choices:
    mode = question.mode.strip().lower()
    if mode and mode not in MODES:
        raise unknown("mode", question.mode, MODES)
    if question.rollout_dtype not in DTYPES:
        raise unknown("format of rollouts", question.rollout_dtype, DTYPES)
    ahead = AHEAD if question.staleness is None else question.staleness
    ratios = RATIOS if question.ratio is None else (question.ratio,)
    return Choices((mode,) if mode else (), ahead, ratios, question.rollout_dtype)


def ask(question: RlQuestion, listener: Listener) -> RlReport:
    """Ways to run a step, the best first."""
    question, file = with_config(question, listener)
    asked = read_question(question, listener)
    work = asked.work
    refused = [one.name for one in asked.frameworks if not {*one.modes} & {*(asked.choices.modes or one.modes)}]
    if len(refused) == len(asked.frameworks):
        able = ", ".join(asked.frameworks[0].modes)
        raise InputError(f"--stack {refused[0]} does not run --mode {question.mode}; it runs {able}.")
    if file is not None:
        found = [judge_step(work, plan_of(file, work))]
    elif asked.bare:
        piece, found = _smallest_fitting(asked)
        asked = replace(asked, piece=piece)
        if found and found[0].fits:
            listener.note(_smallest_note(piece, found[0]))
    else:
        found = search_steps(work, asked.piece, asked.frameworks, asked.choices)
    shown = _shown(found, question.top)
    fitting = bool(shown) and shown[0].fits
    what = {"model": work.model.name, "slice": str(asked.piece), "output": work.lengths.cap}
    what |= {"mean_output": work.lengths.mean, "searched": len(found), "plans": [plan_row(step) for step in shown]}
    why = {"bound_by": _bound(shown[0]), "changes": _changes(found, shown[0])} if fitting else {}
    if fitting and (question.to.strip() or question.out.strip()):
        what["files"] = exported(question, shown[0], written(question.model), str(asked.piece))
    if not fitting and file is None and not asked.bare:
        what["fits_on"] = _larger_that_fits(asked)
    run = run_row(shown[0], asked.terms) if fitting and asked.terms else None
    report = RlReport(**shared(RlReport, work, **what, **why, run=run))
    return report.came_from(replace(asked, best=shown[0] if fitting else None), listener.notes)


def _smallest_fitting(asked: RlAsked) -> tuple[Slice, list[RlStep]]:
    """The smallest slice that has a way with room in memory, else the smallest that has a tight one, else the largest
    that was tried; with its ways."""
    piece, found = asked.piece, list[RlStep]()
    tight: tuple[Slice, list[RlStep]] | None = None
    for piece in _slices_from_least(asked.work.model, asked.piece.chip):
        found = search_steps(asked.work, piece, asked.frameworks, asked.choices)
        if not found or not found[0].fits:
            continue
        if not found[0].tight:
            return piece, found
        tight = tight or (piece, found)
    return tight or (piece, found)


def _smallest_note(piece: Slice, best: RlStep) -> str:
    """Of chips without a number, why so many are taken."""
    room = ", tightly" if best.tight else " with room to spare"
    return f"{piece} is the smallest slice of {piece.chip.title} that was tried and holds the step{room}."


def _larger_that_fits(asked: RlAsked) -> str:
    """The smallest of a few larger slices that holds the step; empty where none does."""
    for piece in slice_sizes(asked.piece.chip, MOST_CHIPS, asked.piece.chips + 1)[:SIZES_TRIED]:
        found = search_steps(asked.work, piece, asked.frameworks, asked.choices)
        if found and found[0].fits:
            return str(piece)
    return ""


def save_timeline(report: RlReport, path: str) -> str:
    """Write the simulated run, of 100 steps where --steps does not say, as a timeline."""
    asked: RlAsked = report.asked
    if asked.best is None:
        raise InputError("There is no timeline of a run that does not fit.")
    save_trace(run_trace(simulate_run(asked.best, asked.terms or RunTerms())), path)
    return "; open it at https://ui.perfetto.dev"


def _shown(found: list[RlStep], most: int) -> list[RlStep]:
    """The best of each mode and pool, no two alike to a reader; of every mode one."""
    kept: dict[tuple[object, ...], RlStep] = {}
    for step in found:
        kept.setdefault((step.plan.mode, step.plan.framework.name, str(step.plan.pool)), step)
    rows = list(kept.values())
    modes = {step.plan.mode: place for place, step in reversed(list(enumerate(rows)))}
    return [step for place, step in enumerate(rows) if place < most or place in modes.values()]


def _bound(step: RlStep) -> str:
    """The phase that most of the step waits for; of generation, its tail where that is most of it."""
    longest = max(step.phases, key=lambda phase: phase.exposed_s)
    tail = longest.name == "generation" and step.generation.tail_s > longest.seconds / 2
    return "the longest answers of generation" if tail else longest.name


def _changes(found: list[RlStep], best: RlStep) -> list[RlChange]:
    """What other modes and a lower cap would give beside the best way."""
    told: list[RlChange] = []
    lengths = best.work.lengths
    drawn, cap = [float(one) for one in lengths.draw(512)], lengths.cap // 2
    share = sum(one > cap for one in drawn) / len(drawn)
    if share <= FEW:
        other = judge_step(replace(best.work, lengths=measured_lengths(drawn, cap)), best.plan)
        capped = {"output": str(cap)}
        told.append(RlChange(f"cap answers at {cap:,} tokens ({share:.0%} are longer)", *_gain(best, other), capped))
    for mode in MODES:
        other = next((one for one in found if one.plan.mode == mode and one.fits), None)
        if other is not None and mode != best.plan.mode:
            tight = ", tight in memory" if other.tight else ""
            text = f"{mode} instead (staleness {other.plan.staleness:g}{tight})"
            told.append(RlChange(text, *_gain(best, other), {"mode": mode}))
    plan = best.plan
    narrow = replace(plan.rollout, weights="fp8", compute="fp8")
    if plan.rollout.weights == "bf16" and not format_refusal(
        plan.framework.engine, plan.pool.chip, best.work.model, narrow
    ):
        other = judge_step(best.work, replace(plan, rollout=narrow))
        text = "rollouts in fp8 (with truncated importance sampling)"
        told.append(RlChange(text, *_gain(best, other), {"rollout_dtype": "fp8"}))
    return [one for one in told if abs(one.gain) >= GAIN]


def _gain(best: RlStep, other: RlStep) -> tuple[float, float]:
    """The other step, and the answers per second and chip that it gains."""
    speed = best.weighed_s * best.plan.chips / (other.weighed_s * other.plan.chips)
    return other.seconds, speed - 1


bind(RlReport, Face(rl_sheet, timeline=save_timeline))
