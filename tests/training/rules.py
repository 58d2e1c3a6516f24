"""What an engineer asks of a recommended plan before running it: a small function each.

A rule returns why an answer breaks it, or nothing. Rules look at what it says, not at how the search came to it.
"""

import functools
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.commands.questions.train import TrainQuestion
from dragonscale.commands.train.ask_train import ask, next_command
from dragonscale.commands.train.train_records import TrainReport
from dragonscale.listener import Listener
from dragonscale.models.recompute_modules import is_modules
from dragonscale.physics.hardware import Torus
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, degrees_of, judge_one, problems, usual_jobs
from dragonscale.training.plan.legality import family
from dragonscale.training.plan.plan import AXES, Plan, short_plan
from dragonscale.training.plan.simplicity import SAME, SHORT, points
from dragonscale.training.search import headroom as room
from dragonscale.training.search.allowed_space import advice_against, freeing_modules
from dragonscale.training.search.error_bands import job_error
from dragonscale.training.search.legal import illegal
from dragonscale.training.search.run_kinds import needed_gains
from dragonscale.training.search.search import search
from dragonscale.training.search.space import Space, misfits

FULLEST = 0.95
"""Of a chip's memory: nothing fuller is recommended, however well peaks of a stack are known."""
SURELY = 0.85
"""A chip this full leaves room by every rule."""
TELLS_APART = 0.05
"""What an unusual plan must gain over a usual one."""
USUAL_SCHEDULES = ("1f1b", "interleaved", "gpipe")


@dataclass(frozen=True)
class Answer:
    """The recommended plan of a job, and the report that it was taken from."""

    job: Job
    plan: Plan
    report: TrainReport


def question_of(words: list[str]) -> TrainQuestion:
    """A question in the words of the command line."""
    flags: dict[str, Any] = dict(zip(words[1::2], words[2::2], strict=True))
    return TrainQuestion(words[0], **{name.removeprefix("--"): value for name, value in flags.items()})


@functools.cache
def answer_to(line: str) -> Answer:
    """The answer of `dscale train` to a line of its words."""
    report = ask(question_of(shlex.split(line)), Listener())
    assert report.plans, f"{line}: no plan. {' '.join(report.notes)}"
    best = report.plans[0]
    return Answer(report.asked.answered.assessed.job, best.plan, report)


def seconds_of(answer: Answer, plan: Plan) -> float:
    """The expected step of another plan for the same job."""
    return first_number(judge_one(answer.job, plan).seconds)


def best_with(answer: Answer, **changes: Any) -> float:
    """The expected step of the recommended plan of a smaller space; infinite where there is none."""
    space = replace(Space(words=Plan(dtype=answer.plan.dtype)), **changes)
    found = search(answer.job, space, 1).best
    return found[0].seconds if found else float("inf")


def runs(answer: Answer) -> str:
    """The stack has every word of the plan on that chip, the sizes divide, the wires are there."""
    job, plan = answer.job, answer.plan
    return "; ".join([*problems(job, plan, judge_one(job, plan)), *misfits(job, plan), *illegal(job, plan)])


def is_not_advised_against(answer: Answer) -> str:
    """The stack's makers have nothing against it."""
    return "; ".join(advice_against(answer.job, answer.plan))


def leaves_room(answer: Answer) -> str:
    """Some memory is left for what no prediction sees, with an uneven load of experts too."""
    judged = judge_one(answer.job, answer.plan)
    filled = first_number(judged.hbm_bytes) / answer.job.slice.chip.visible
    roomy = filled <= FULLEST and room.leaves_room(answer.job, answer.plan, judged)
    return "" if roomy else f"it fills {filled:.0%} of memory"


def is_of_a_published_kind(answer: Answer) -> str:
    """Somebody has published such a plan, or it gains more than predictions are told apart by over one that is."""
    job, own = answer.job, answer.report.plans[0].step_s

    def asked(plan: Plan) -> float:
        return float(
            needed_gains(replace(job, sequence=SHORT + 1), degrees_of([plan]), plan.zero, job_error(job), plan.dtype)[0]
        )

    if not asked(answer.plan):
        return ""
    near = [one for one in answer.report.plans if not one.tight and not asked(one.plan)]
    best = min((one.step_s for one in near), default=float("inf"))
    gain = best / own - 1
    return f"nobody has published such a plan, and it gains {gain:.1%}" if gain < TELLS_APART else ""


def recomputes_what_frees(answer: Answer) -> str:
    """Every module that runs again frees something in that model."""
    remat = answer.plan.remat
    if not is_modules(remat) or freeing_modules(answer.job.model, (remat,)) == (remat,):
        return ""
    return f"recomputing {remat} frees no more than {freeing_modules(answer.job.model, (remat,))}"


def keeps_tensor_in_a_node(answer: Answer) -> str:
    """TP stays where NVLink is; on a torus, in a pod."""
    network, piece, tensor = answer.job.slice.chip.network, answer.job.slice, answer.plan.tensor
    most = piece.chips // piece.pods if isinstance(network, Torus) else network.levels[0].degree
    return f"tensor={tensor} leaves the {most} chips of a node" if most % tensor and tensor > 1 else ""


def splits_short_sequences_for_a_gain(answer: Answer) -> str:
    """On TPUs context at short sequences, where there are enough of them, must gain more than the error of predicted
    steps there."""
    job, best = answer.job, answer.report.plans[0]
    enough = job.batch >= job.slice.chips * job.slice.chip.devices
    if answer.plan.context == 1 or job.sequence > SHORT or family(job.slice.chip) != "tpu" or not enough:
        return ""
    error = min(1 - best.step_low_s / best.step_s, best.step_high_s / best.step_s - 1)
    gain = best_with(answer, fixed={"context": 1}) / seconds_of(answer, answer.plan) - 1
    return f"context={answer.plan.context} gains {gain:.1%}, and steps are known to {error:.0%}" if gain < error else ""


def is_simplest(answer: Answer) -> str:
    """Of plans that split the same axes, none that is as fast is simpler; none at all is much faster and simpler."""
    job, plan = answer.job, answer.plan

    def axes(one: Plan) -> list[object]:
        return [getattr(one, name) > 1 for name in AXES]

    own, score = seconds_of(answer, plan), int(points(plan, vars(plan), job.sequence))
    for row in answer.report.plans[1:]:
        if row.hbm_bytes > SURELY * row.hbm_limit_bytes or points(row.plan, vars(row.plan), job.sequence) >= score:
            continue
        alike = axes(row.plan) == axes(plan) and row.step_s <= own * (1 + SAME)
        if alike or row.step_s < own / (1 + TELLS_APART):
            return f"{short_plan(row.plan)} is simpler and {own / row.step_s - 1:+.1%} faster"
    return ""


def has_a_usual_stack(answer: Answer) -> str:
    """The stack is one that people run there."""
    job, name = answer.job, answer.job.stack.name
    usual = [one.stack.name for one in usual_jobs(replace(job, auto="usual"))]
    return f"stack {name} is none of {', '.join(usual)}" if name not in usual else ""


def has_the_fastest_stack(answer: Answer) -> str:
    """No other stack that people run there is faster by more than stacks are told apart by."""
    own = answer.report.plans[0].step_s
    faster = [one for one in answer.report.stacks if not one.tight and one.step_s * (1 + TELLS_APART) < own]
    return "; ".join(f"{one.stack} is {own / one.step_s - 1:.0%} faster" for one in faster)


def has_whole_microbatches(answer: Answer) -> str:
    """A microbatch is a power of two, unless a replica has an odd number of sequences or all of them pass at once."""
    job, plan = answer.job, answer.plan
    share = job.batch // plan.replicas
    odd = plan.microbatch & (plan.microbatch - 1) and plan.microbatch != share and share % 2 == 0
    return f"microbatches of {plan.microbatch} of {share} sequences" if odd else ""


def has_a_usual_schedule(answer: Answer) -> str:
    """A zero-bubble or bidirectional schedule must gain more than predictions are told apart by."""
    plan = answer.plan
    if plan.pipe == 1 or plan.schedule in USUAL_SCHEDULES or answer.job.stack.name == "hai-llm":
        return ""
    gain = best_with(answer, schedule=USUAL_SCHEDULES) / seconds_of(answer, plan) - 1
    return f"{plan.schedule} gains {gain:.1%}" if gain < TELLS_APART else ""


def keeps_pods_apart(answer: Answer) -> str:
    """Between pods of TPUs there are replicas; a pipeline over them must gain more than predictions are told apart
    by."""
    job, plan = answer.job, answer.plan
    if job.slice.pods == 1 or plan.pipe == 1:
        return ""
    gain = best_with(answer, fixed={"pipe": 1}) / seconds_of(answer, plan) - 1
    return f"pipe={plan.pipe} over {job.slice.pods} pods gains {gain:.1%}" if gain < TELLS_APART else ""


def prints_itself(answer: Answer) -> str:
    """The command that is printed next means the same plan of the same job, and gives the same step."""
    report = answer.report
    command = shlex.split(next_command(report.asked, report))
    words = command[command.index("train") + 1 :] if "train" in command else command[2:]
    flags = dict(zip(words[1::2], words[2::2], strict=True))
    flags["--plan"], model = words[0], flags.pop("--model")
    again = ask(question_of([model, *(one for pair in flags.items() for one in pair)]), Listener(), brief=True)
    one, best = again.plans[0], report.plans[0]
    same = one.plan == answer.plan and one.stack == best.stack and abs(one.step_s / best.step_s - 1) < 1e-9
    return "" if same else f"`{' '.join(command)}` is {short_plan(one.plan)} of {one.stack}, {one.step_s:.4g} s"


Rule = Callable[[Answer], str]
RULES: tuple[Rule, ...] = (
    runs,
    is_not_advised_against,
    leaves_room,
    is_of_a_published_kind,
    recomputes_what_frees,
    keeps_tensor_in_a_node,
    splits_short_sequences_for_a_gain,
    is_simplest,
    has_a_usual_stack,
    has_the_fastest_stack,
    has_whole_microbatches,
    has_a_usual_schedule,
    keeps_pods_apart,
    prints_itself,
)


def broken(answer: Answer) -> dict[str, str]:
    """The rules that an answer breaks, by name, and why."""
    found = {rule.__name__: rule(answer) for rule in RULES}
    return {name: why for name, why in found.items() if why}
