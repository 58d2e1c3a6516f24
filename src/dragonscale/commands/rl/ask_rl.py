"""The answer to `dscale rl`: the question read, then every way to run the step judged, the best first."""

from dataclasses import dataclass, replace

from dragonscale.commands.asked_chips import asked_chips
from dragonscale.commands.given import target_of
from dragonscale.commands.questions.flag import check_limits, written
from dragonscale.commands.questions.rl import RlQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.commands.rl.rl_blocks import rl_blocks
from dragonscale.commands.rl.rl_export import checked_target, exported, with_config
from dragonscale.commands.rl.rl_records import RlReport, plan_row, run_row
from dragonscale.commands.train.lengths import read_lengths
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.exports.rl.planned import plan_of
from dragonscale.listener import Listener
from dragonscale.models import load_model
from dragonscale.models.assumed import with_assumed
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice, Torus
from dragonscale.physics.hardware.changes import check_effect
from dragonscale.physics.hardware.prices import priced_targets
from dragonscale.physics.units import parse
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.space.legal import context_refusal, format_refusal
from dragonscale.simulation.perfetto import save_trace
from dragonscale.simulation.rl.advice import bottleneck, changes, distinct_steps
from dragonscale.simulation.rl.frameworks import MODES, Framework, framework
from dragonscale.simulation.rl.lengths import SPREAD, AnswerLengths, measured_lengths
from dragonscale.simulation.rl.remedies import older_default, remedies, shortage
from dragonscale.simulation.rl.run import RunTerms, run_trace, simulate_run
from dragonscale.simulation.rl.sizing import RlJob, larger_slice_that_fits, slices_from_least, smallest_fitting
from dragonscale.simulation.rl.step import RlStep, judge_step
from dragonscale.simulation.rl.ways import AHEAD, RATIOS, Choices
from dragonscale.simulation.rl.work import RlWork, work_of
from dragonscale.training.plan.tuning import Tuning, read_tuning

# The frameworks that are compared by default: the two with most published steps.
DEFAULT_FRAMEWORKS = ("nemo-rl", "verl")
DTYPES = ("bf16", "fp8")
# Answers of a step: several times the largest that are published.
MAX_ANSWERS = 65_536


@dataclass(frozen=True)
class RlAsked:
    """A question understood: the job, the run that is simulated (None without --steps), the best step once it is known,
    and whether a chip was named without a number (`bare`)."""

    question: RlQuestion
    job: RlJob
    terms: RunTerms | None = None
    best: RlStep | None = None
    bare: bool = False


def read_question(question: RlQuestion, listener: Listener) -> RlAsked:
    """Check every flag; what cannot be used is refused in one sentence. Of a chip without a number the slice is the
    smallest that could hold weights and optimizer."""
    check_effect(question.set, "training", "serving")
    check_limits(question)
    if not written(question.model).strip():
        raise InputError("Say which model, such as llama3-8b; or give --plan CONFIG.")
    if not written(question.on).strip():
        raise InputError("Say which chips, such as --on h100:64; or give --plan CONFIG.")
    model = load_model(with_assumed(question.model, question.assume, question.family))
    chip, where = _target(question, question.on, listener)
    # a chip without a number
    bare = where is None
    where = where or slices_from_least(model, chip)[0]
    frameworks = _frameworks(question, where, listener)
    work = _work(question, model, listener)
    if question.reference is None and not any(row.reference for row in frameworks):
        work = replace(work, reference=False)
    pool = None
    if written(question.rollout_on).strip():
        pool = _counted_slice(question, question.rollout_on, listener)
    choices = replace(_choices(question), pool=pool)
    if work.host_memory and not choices.modes and pool is None:
        # a given host is asked about for the run as it is launched; other modes are remedies
        choices = replace(choices, modes=tuple(dict.fromkeys(row.modes[0] for row in frameworks)))
    plan = ServingPlan(weights=choices.dtype, compute=choices.dtype)
    generating = (choices.pool or where).chip
    if all(format_refusal(row.engine, generating, model, plan) for row in frameworks):
        instead = ""
        if choices.dtype != DTYPES[0]:
            instead = f"; take --rollout-dtype {DTYPES[0]}"
        engine = frameworks[0].engine
        raise InputError(f"{engine} does not generate in {choices.dtype} on {generating.title}{instead}.")
    if why := context_refusal(model, work.prompt, work.lengths.cap):
        # what the memory holds is a question of its own, which positions that are extended do not change
        listener.note(f"{why[0].upper()}{why[1:]}. Positions are taken as extended here.")
    return RlAsked(question, RlJob(work, where, frameworks, choices), _terms(question), bare=bare)


def _work(question: RlQuestion, model: Transformer, listener: Listener) -> RlWork:
    """The work of a step: prompts, answers and their lengths, updates, and what scores the answers."""
    prompt = question.prompt.tokens(listener)
    lengths = _lengths(question, listener)
    work = work_of(
        model, question.algorithm, question.prompts, question.samples, prompt, lengths=lengths, updates=question.updates
    )
    if work.answers > MAX_ANSWERS:
        raise InputError(
            f"A step has {work.answers:,} answers, --prompts times --samples; it has at most {MAX_ANSWERS:,}."
        )
    if work.answers < question.updates:
        raise InputError(f"--updates is {question.updates:,}, more than the {work.answers:,} answers of a step.")
    tuning = _tuning(question, model)
    host_memory = 0.0
    if question.host_memory.strip():
        host_memory = parse(question.host_memory, "bytes", "the memory of a host")
    return replace(
        work,
        tuning=tuning,
        host_memory=host_memory,
        reference=work.reference if question.reference is None else question.reference,
        reward_s=question.reward_s.read(0.0),
        reward_passes=_passes(model, question.reward) if written(question.reward).strip() else 0.0,
        turns=question.turns,
        tool_s=question.tool_s.read(0.0),
        oversample=question.oversample,
    )


def _tuning(question: RlQuestion, model: Transformer) -> Tuning:
    """What of the policy is trained."""
    method = question.method.strip().lower()
    adapters = question.lora_rank is not None or question.lora_targets.strip() or question.frozen.strip()
    if not method and adapters:
        method = "lora"
    if method not in ("", "full", "lora", "qlora"):
        raise unknown("method of training a policy called", question.method, ("full", "lora", "qlora"))
    return read_tuning(model, method, question.lora_rank or 0, question.lora_targets, question.frozen)


def _target(question: RlQuestion, chips: object, listener: Listener) -> tuple[Chip, Slice | None]:
    """The chip of a flag at its price, and the slice of it where one is named."""
    target = target_of(asked_chips(chips, question.set), listener)  # pyright: ignore[reportArgumentType]
    (priced,), strange = priced_targets(question.price, [target], question.pricing, question.owned)
    for note in strange:
        listener.note(note)
    return priced


def _counted_slice(question: RlQuestion, chips: object, listener: Listener) -> Slice:
    """The slice of --rollout-on, which must say how many chips it has."""
    chip, where = _target(question, chips, listener)
    if where is None:
        raise InputError(f"--rollout-on is {shorten(written(chips))}; write how many chips, such as {chip.name}:8.")
    return where


def _terms(question: RlQuestion) -> RunTerms | None:
    """The run that is simulated; None without --steps."""
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
    """How long answers are: measured, or a mean and a spread below the cap."""
    cap = question.output.tokens(listener)
    if question.lengths.strip():
        if question.mean_output.strip() or question.spread is not None:
            raise InputError("--lengths has the lengths of answers; leave out --mean-output and --spread.")
        lengths = read_lengths(question.lengths, answers=True)
        if lengths.note:
            listener.note(lengths.note)
        return measured_lengths(list(map(float, lengths.tokens)), cap)
    spread = SPREAD if question.spread is None else question.spread
    if question.mean_output.strip():
        return AnswerLengths(question.mean_output.tokens(listener), cap, spread)
    mean = max(cap // 2, 1)
    listener.note(
        f"Answers are taken to have {mean:,} tokens on average, half of --output; --mean-output says otherwise."
    )
    return AnswerLengths(mean, cap, spread)


def _passes(model: Transformer, reward: object) -> float:
    """The FLOPs of a forward pass of the reward model over those of the policy's."""
    work = Workload(1, 1024, 1024)  # one sequence, of any length: the ratio hardly depends on it
    reward_model = load_model(reward)  # pyright: ignore[reportArgumentType]
    policy, scorer = (sum(forward_flops(each.program(), work).values()) for each in (model, reward_model))
    return float(scorer) / float(policy)


def _frameworks(question: RlQuestion, where: Slice, listener: Listener) -> list[Framework]:
    """The frameworks that may run the step: the named one, or by default those that are best known on the chips."""
    name = question.stack.strip().lower()
    target = checked_target(question)
    if name == "auto":
        name = target or name
    names: tuple[str, ...] = DEFAULT_FRAMEWORKS
    if name != "auto":
        names = (name,)
    elif isinstance(where.chip.network, Torus):
        listener.note("The known frameworks run on GPUs; --stack generic is taken.")
        names = ("generic",)
    return [framework(each).with_share(question.memory_fraction) for each in names]


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
    understood = read_question(question, listener)
    job = understood.job
    _check_modes(question, job)
    if file is not None:
        steps = [judge_step(job.work, plan_of(file, job.work))]
    elif understood.bare:
        job, steps = smallest_fitting(job)
        if steps and steps[0].fits:
            listener.note(_smallest_note(job.slice, steps[0]))
    else:
        steps = job.search()
    shown = distinct_steps(steps, question.top)
    work = job.work
    report = RlReport(
        model=work.model.name,
        slice=str(job.slice),
        algorithm=work.algorithm,
        prompts=work.prompts,
        samples=work.samples,
        prompt=work.prompt,
        output=work.lengths.cap,
        mean_output=work.lengths.mean,
        updates=work.updates,
        method=str(work.tuning) if work.tuning.rank else "",
        searched=len(steps),
        plans=list(map(plan_row, shown)),
    )
    best = None
    if shown and shown[0].fits:
        best = shown[0]
    if best is not None:
        report.bound_by, report.changes = bottleneck(best), changes(steps, best)
        if question.memory_fraction is None and (note := older_default(best)):
            listener.note(note)
        if question.to.strip() or question.out.strip():
            report.files = exported(question, best, written(question.model), str(job.slice))
        if understood.terms is not None:
            report.run = run_row(best, understood.terms)
    elif file is None and not understood.bare:
        report.remedies = remedies(job)
        if not steps:
            report.shortage = shortage(job)
        larger = larger_slice_that_fits(job)
        report.fits_on = "" if larger is None else str(larger)
    return report.came_from(replace(understood, job=job, best=best), listener.notes)


def _check_modes(question: RlQuestion, job: RlJob) -> None:
    """Refuse a mode that none of the frameworks runs."""
    if not job.choices.modes:
        return
    if not any({*row.modes} & {*job.choices.modes} for row in job.frameworks):
        row = job.frameworks[0]
        raise InputError(f"--stack {row.name} does not run --mode {question.mode}; it runs {', '.join(row.modes)}.")


def _smallest_note(where: Slice, best: RlStep) -> str:
    """Why a chip without a number became this slice."""
    headroom = "tightly" if best.tight else "with headroom"
    return f"{where} is the smallest slice of {where.chip.title} that was tried and holds the step, {headroom}."


def save_timeline(report: RlReport, path: str) -> str:
    """Write the simulated run, of 100 steps without --steps, as a timeline."""
    understood: RlAsked = report.asked
    if understood.best is None:
        raise InputError("There is no timeline of a run that does not fit.")
    save_trace(run_trace(simulate_run(understood.best, understood.terms or RunTerms())), path)
    return "; open it at https://ui.perfetto.dev"


bind(RlReport, Face(rl_blocks, timeline=save_timeline))
