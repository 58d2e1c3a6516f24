"""`dscale run rl`: GRPO with a rule's rewards by our own trainer and engine in one process, beside what was planned."""

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from dragonscale.blocks.sheet import Column, Prose, Sheet, Title, amount, table
from dragonscale.commands.given import check_named
from dragonscale.commands.questions.flag import check_limits, written
from dragonscale.commands.questions.run import RunRlQuestion
from dragonscale.commands.record import Face, Record, bind
from dragonscale.commands.run.run_train import EXTRA, NEEDED, check_installed, prepare_jax
from dragonscale.errors import InputError, unknown
from dragonscale.listener import Listener
from dragonscale.models.assumed import with_assumed
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.units import render
from dragonscale.runtime.rl.rules import RULES
from dragonscale.runtime.train.planned import chip_of, lacks_rate
from dragonscale.runtime.train.settings import Order, read_order
from dragonscale.serving.engine.plan import ServingPlan, parse_serving_plan
from dragonscale.simulation.rl.frameworks import framework
from dragonscale.simulation.rl.lengths import measured_lengths
from dragonscale.simulation.rl.step import RlPlan, RlStep, judge_step
from dragonscale.simulation.rl.work import packed_job, work_of
from dragonscale.training.plan.plan_file import given_settings
from dragonscale.training.search.headroom import room_bytes

if TYPE_CHECKING:  # with JAX
    from dragonscale.runtime.rl.grpo import GrpoOrder, GrpoStep

# Tokens of a microbatch without a word. A pass of few tokens is all launches and reading of weights: planned steps of
# 0.5B to 1.5B models on an H200 come within 4% of the fastest from here on.
FULL = 8192


class RlRunStep(msgspec.Struct):
    """One step: the mean reward and length of its answers, and how far they are from the reference."""

    step: int
    reward: float
    length: float
    loss: float
    kl: float
    step_s: float


class RlRunPhase(msgspec.Struct):
    """Seconds of a phase: the median over the steps after the first, and what was planned."""

    name: str
    seconds: float
    planned_s: float | None


class RlRun(Record):
    """What came of a run. Times are medians over the steps after the first, which also compiles; planned are those of
    the slice that was named, or of the devices where they are known chips, with the lengths that answers had."""

    model: str
    plan: str
    rollout: str
    reward: str
    devices: int
    device_kind: str
    parameters: int
    steps: list[RlRunStep]
    step_s: float
    phases: list[RlRunPhase]
    tokens_per_s: float
    slice: str
    planned_step_s: float | None
    peak_bytes_per_device: int | None = None

    def headline(self) -> str:
        first, last = self.steps[0], self.steps[-1]
        return f"{self.model}: reward {first.reward:.3f} to {last.reward:.3f}, {render(self.step_s, 's')} a step"


def ask_rl(question: RunRlQuestion, listener: Listener) -> RlRun:
    """Run it, and tell each few steps how it goes."""
    check_installed(NEEDED, *EXTRA)
    check_limits(question)
    check_named(question.model, question.on)
    train, rollout = _orders(question, listener)
    prepare_jax(question.cpu)
    import jax

    from dragonscale.runtime.rl.grpo import GrpoOrder, grpo, prepare
    from dragonscale.runtime.train.loop import memory_errors

    sizes = (question.prompts, question.samples, question.prompt.tokens(listener), question.output.tokens(listener))
    more = {"rule": question.rule, "clip": question.clip, "kl": question.kl, "together": question.max_seqs}
    order = GrpoOrder(train, rollout, *sizes, updates=question.updates, **more)
    device = jax.local_devices()[0]
    chip = chip_of(device.device_kind)
    here = ""
    if chip is not None and chip.kind == "gpu":
        here = f"{chip.name}:{train.plan.chips}"
    where = written(question.on) or here
    if "microbatch" not in given_settings(question.plan):
        order = filled(order, where)

    def watch(step: "GrpoStep") -> None:
        listener.step(step.step, question.steps)
        if question.log and (step.step % question.log == 0 or step.step == question.steps):
            listener.log(
                f"step {step.step:>4,}  reward {step.reward:.4f}  loss {step.loss:+.4f}  KL {step.kl:.4f}  "
                f"{step.length:.0f} tokens  {step.step_s:.3g} s"
            )

    with memory_errors(order.train, train.tuned(), device):
        steps = grpo(prepare(order), watch)
    planned = planned_step(order, where, [step.length for step in steps])
    # the first step also compiles
    later = steps[1:] or steps
    means = {name: statistics.median(step.phases[name] for step in later) for name in steps[0].phases}
    seconds = statistics.median(step.step_s for step in later)
    tokens = order.answers * (order.prompt + statistics.fmean(step.length for step in later))
    return RlRun(
        model=train.model,
        plan=str(order.train.plan),
        rollout=str(rollout),
        reward=question.rule,
        devices=train.plan.chips,
        device_kind=device.device_kind,
        parameters=count_parameters(train.tuned()).total,
        steps=[RlRunStep(**{name: getattr(step, name) for name in RlRunStep.__struct_fields__}) for step in steps],
        step_s=seconds,
        phases=[RlRunPhase(name, value, planned and planned.phase(name)) for name, value in means.items()],
        tokens_per_s=tokens / seconds,
        slice=where,
        planned_step_s=planned and planned.seconds,
        peak_bytes_per_device=(device.memory_stats() or {}).get("peak_bytes_in_use"),
    ).came_from(question, listener.notes)


def _orders(question: RunRlQuestion, listener: Listener) -> tuple[Order, ServingPlan]:
    """What the trainer and the engine are to run; refused in one sentence where they cannot."""
    if question.rule not in RULES:
        raise unknown("rule of rewards", question.rule, RULES)
    answers = question.prompts * question.samples
    if answers % question.updates:
        raise InputError(f"A step has {answers:,} answers, which --updates {question.updates} does not divide.")
    dtype = question.dtype or ("fp32" if question.cpu else "bf16")
    changes = {"data": ["synthetic"], "steps": question.steps, "batch": answers // question.updates}
    changes |= {"seq": question.prompt.tokens(listener) + question.output.tokens(listener), "dtype": dtype}
    changes |= {"learning_rate": question.learning_rate, "seed": question.seed, "weight_decay": 0.0, "capacity": 0.0}
    # the learning rate is constant
    changes |= {"final": 1.0} | ({"weights": question.load_weights} if question.load_weights else {})
    model = written(with_assumed(question.model, question.assume, question.family))
    # the trainer reads answers of the engine, so its data is a stand-in
    order = read_order(question.plan, model, written(question.on), changes)
    if order.plan.pipe > 1:
        raise InputError(f"Log-probabilities are read without pipeline stages, and pipe is {order.plan.pipe}.")
    return order, parse_serving_plan(question.rollout)


def filled(order: "GrpoOrder", where: str) -> "GrpoOrder":
    """The order with the largest microbatch of `FULL` tokens that the planner has room for beside the engine."""
    train, sizes = order.train, range(1, max(FULL // order.train.run.seq, 1) + 1)
    # sequences of an update on each replica, which a microbatch divides
    each = train.run.batch // train.plan.replicas
    for size in sorted((size for size in sizes if each % size == 0), reverse=True):
        wide = replace(order, train=replace(train, plan=replace(train.plan, microbatch=size)))
        step = planned_step(wide, where, [float(order.output)])
        # trainer and engine share the chips
        if step is None or step.train_bytes + step.generation.hbm_bytes <= room_bytes(step.plan.job):
            return wide
    return order


def planned_step(order: "GrpoOrder", where: str, lengths: list[float]) -> RlStep | None:
    """The planner's step of a run on a slice, with the lengths that its answers had: not packed, a prompt and its
    answer to a row. None where no slice is known, or no rate of its chips."""
    train = replace(order.train, slice=where)
    if not where or lacks_rate(train):
        return None
    slice_ = parse_slice(where)
    sizes = (order.prompts, order.samples, order.prompt, measured_lengths(lengths, order.output), order.updates)
    work = replace(work_of(train.tuned(), "grpo", *sizes), reference=bool(order.kl), padded=order.prompt + order.output)
    job = packed_job(work, slice_, "dragonscale", train.plan.replicas * train.plan.microbatch)
    row = framework("dragonscale")
    row = msgspec.structs.replace(row, engine=f"{row.engine},scheduling.max_sequences={order.together}")
    plan = replace(train.plan, dtype=train.run.dtype)
    return judge_step(work, RlPlan("colocated", row, job, plan, order.rollout, slice_))


def rl_run_blocks(run: RlRun, _detail: bool) -> Sheet:
    """The phases of the run and the plan side by side."""
    rows = [(phase.name, amount(phase.seconds, "s"), amount(phase.planned_s, "s")) for phase in run.phases]
    rows.append(("step", amount(run.step_s, "s"), amount(run.planned_step_s, "s")))
    first, last = run.steps[0], run.steps[-1]
    summary = f"The reward ({run.reward}) went from {first.reward:.3f} to {last.reward:.3f} in {len(run.steps)} steps; "
    summary += f"the last answers were {last.kl:.3g} from the reference (KL)."
    if run.planned_step_s is None and run.slice:
        summary += f" The chips of {run.slice} have no rate of what was multiplied in, so nothing is planned."
    elif run.planned_step_s is None:
        summary += " Name a slice (--on h200:1) to see planned phases beside the run."
    elif chip_of(run.device_kind) is None:
        summary += f" These devices ({run.device_kind}) are not the chips of the plan: the times cannot be compared."
    else:
        summary += f" A step took {run.step_s / run.planned_step_s:.2f} times what was planned."
    title = Title(f"GRPO of {run.model}: {run.parameters:,} parameters", f"{run.plan}, engine {run.rollout}")
    where = f"planned on {run.slice}" if run.slice else "planned"
    return Sheet((title, Prose(summary), table(["", Column("run", right=True), Column(where, right=True)], rows)))


bind(RlRun, Face(rl_run_blocks))
