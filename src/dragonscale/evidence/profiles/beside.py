"""A plan's ledger beside what was measured, line by line, so that both sides add up to their step.

Both sides are put into the same drawers. Matmuls and attention by the part of the model and the phase; what is
elementwise by layers, embedding and head, because compilers fuse a norm with what follows it; copies in all;
collectives by kind and mesh axes, whatever the phase, as compilers move them; the optimizer; and what the step waits
for. Of what travels the exposed part is compared: the rest costs the step nothing. Where a profile does not say the
phase of most of its time, phases are left out on both sides.
"""

from collections import defaultdict
from dataclasses import dataclass

from dragonscale.evidence.profiles.device_work import TRAVELS
from dragonscale.evidence.profiles.groups import over
from dragonscale.evidence.profiles.per_op import StepOps
from dragonscale.evidence.profiles.records import BesideLine, WorkGroup
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.verify.records import Request
from dragonscale.models import load_model
from dragonscale.physics.hardware import Slice, parse_slice
from dragonscale.plan.ledger import COLLECTIVES, Ledger, LedgerLine
from dragonscale.serving.engine.engine import load_engine
from dragonscale.serving.engine.plan import parse_serving_plan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import decode, prefill
from dragonscale.serving.iteration.ledger import iteration_ledger
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan_file import parse_plan
from dragonscale.training.plan.stack import load_stack


@dataclass(frozen=True)
class ExpectedStep:
    """What a plan says of a step on one chip. `model_flops` are those that an MFU counts, of one chip; `software` is
    the stack or engine."""

    request: Request
    ledger: Ledger
    mesh: dict[str, int]
    seconds: float
    model_flops: float | None
    software: str
    piece: Slice

    @property
    def lines(self) -> list[LedgerLine]:
        """Every kernel, move and wait."""
        return self.ledger.lines


def expected_step(request: Request, stack: str, engine: str) -> ExpectedStep:
    """The ledger of a training step under a stack, or of an iteration of an engine."""
    piece = parse_slice(request.slice)
    if request.program == "train":
        job = Job(load_model(request.model), piece, request.batch, request.sequence, load_stack(stack))
        verdict = judge_one(job, parse_plan(request.plan))
        seconds, flops = float(verdict.ledger.total("exposed_s")), job.model_flops / piece.chips
        return ExpectedStep(request, verdict.ledger, dict(verdict.axes), seconds, flops, stack, piece)
    deployment = Deployment(load_model(request.model), piece, parse_serving_plan(request.plan), load_engine(engine))
    prompt = request.program == "prefill"
    step = prefill(request.sequence, request.batch) if prompt else decode(request.batch, request.sequence - 1)
    ledger = iteration_ledger(deployment, step)
    mesh = {axis: int(size) for axis, size in deployment.axes.items()}
    return ExpectedStep(request, ledger, mesh, float(ledger.total("exposed_s")), None, engine, piece)


Drawer = tuple[str, str, str]
"""Section, phase, kind."""
IDLE: Drawer = ("step", "", "idle")
_AGAIN: Drawer = ("attention", "recompute", "attention")
_MATMULS = ("matmul", "grouped matmul")
_ENDS = {"embed": "embedding", "embedding": "embedding", "head": "head", "loss": "head", "sampling": "head"}
_PARTS = {"scores": "attention", "experts": "experts", "moe": "experts", "router": "experts", "embed": "embedding"}
_GROUPED = ("elementwise", "reduction", "gather", "control", "sampling", "")
_COPIES = ("copy", "memory")
_WORK = ("flops", "hbm_bytes", "wire_bytes")


class Sums(dict[str, float]):
    """What lies in a drawer on one side: `seconds`, `bound_s`, `flops`, `hbm_bytes`, `wire_bytes`; zero where nothing
    does."""

    def __missing__(self, what: str) -> float:
        return 0.0

    def add(self, **amounts: float) -> None:
        """Put one more line in."""
        for what, amount in amounts.items():
            self[what] += amount


def beside(
    expected: ExpectedStep, step: StepOps, groups: tuple[WorkGroup, ...], idle_s: float
) -> tuple[BesideLine, ...]:
    """Every drawer that has something on either side, the largest difference first."""
    timed = sum(group.exposed_s for group in groups)
    named = sum(group.exposed_s for group in groups if group.phase)
    phases = bool(timed) and named > 0.8 * timed and expected.request.program == "train"
    measured: defaultdict[Drawer, Sums] = defaultdict(Sums)
    planned: defaultdict[Drawer, Sums] = defaultdict(Sums)
    for number, role in step.ran_roles:
        work = {what: step.amount(number, what) for what in _WORK}
        drawer = measured_drawer(role, expected.mesh, phases)
        measured[drawer].add(seconds=float(step.totals.exposed[number]), **work)
    measured[IDLE].add(seconds=idle_s)
    for line in expected.lines:
        work = {what: float(line.total(what)) for what in ("bound_s", *_WORK)}
        planned[planned_drawer(line, phases)].add(seconds=float(line.total("exposed_s")), **work)
    if _AGAIN not in planned and _AGAIN in measured:
        # blocks of scores are computed again in the backward pass, and are its own work
        measured["attention", "backward", "attention"].add(**measured.pop(_AGAIN))
    lines = [_line(drawer, measured[drawer], planned[drawer]) for drawer in {**measured, **planned}]
    some = [line for line in lines if line.measured_s or line.expected_s]
    return tuple(sorted(some, key=lambda line: -abs(line.difference_s)))


def measured_drawer(role: OpRole, mesh: dict[str, int], phases: bool) -> Drawer:
    """Where an op belongs."""
    if role.kind in TRAVELS:
        return over(role.group, mesh), "", role.kind
    if role.section in ("optimizer", "gradients") or role.phase == "update":
        return "optimizer", "", "update"
    if role.kind == "host":
        return "step", "", "host"
    phase = role.phase if phases else ""
    if role.kind == "attention" or (role.section, role.what) == ("attention", "scores"):
        return "attention", phase, "attention"
    if role.kind in _MATMULS:
        section = _ENDS.get(role.section, role.section) or "not known"
        return section, phase, "matmul"
    ends = _ENDS.get(role.section, "layers")
    return ("step", "", "copies") if role.kind in _COPIES else (ends, phase, "elementwise")


def planned_drawer(line: LedgerLine, phases: bool) -> Drawer:
    """Where a line of the ledger belongs."""
    if line.kind in COLLECTIVES:
        return "+".join(line.axes) or "groups not recorded", "", line.kind
    if line.kind == "optimizer" or line.phase == "update":
        return "optimizer", "", "update"
    phase = line.phase if phases else ""
    ends = _ENDS.get(line.section, "layers")
    if line.kind == "attention":
        return "attention", phase, "attention"
    if line.kind in _MATMULS:
        return ("head" if line.section == "head" else _PARTS.get(line.part, line.part)) or "not known", phase, "matmul"
    if line.kind == "sampling":
        return "head", phase, "elementwise"
    if line.kind in _COPIES:
        return "step", "", "copies"
    if line.kind in _GROUPED:
        return ends, phase, "elementwise"
    return IDLE


def _line(drawer: Drawer, measured: Sums, planned: Sums) -> BesideLine:
    moved = "wire_bytes" if drawer[2] in TRAVELS else "hbm_bytes"
    return BesideLine(
        *drawer,
        measured_s=measured["seconds"],
        expected_s=planned["seconds"],
        difference_s=measured["seconds"] - planned["seconds"],
        bound_s=planned["bound_s"] or None,
        measured_flops=measured["flops"] or None,
        planned_flops=planned["flops"] or None,
        measured_bytes=measured[moved] or None,
        planned_bytes=planned[moved] or None,
        why=_why(drawer, measured, planned),
    )


def _why(drawer: Drawer, measured: Sums, planned: Sums) -> str:
    """What the two sides differ in: work, or the rate at which it is done."""
    ran, meant = measured["seconds"], planned["seconds"]
    if not meant or not ran:
        return "" if meant == ran else "not planned" if ran else "not in the profile"
    if drawer[2] in TRAVELS:
        return _more(measured["wire_bytes"], planned["wire_bytes"], "bytes sent")
    if drawer[2] not in ("matmul", "attention"):
        return _more(measured["hbm_bytes"], planned["hbm_bytes"], "bytes")
    more = _more(measured["flops"], planned["flops"], "FLOPs")
    if more or not measured["flops"] or not planned["flops"]:
        return more
    rate = (measured["flops"] / ran) / (planned["flops"] / meant)
    return f"{rate:.0%} of the expected rate" if abs(rate - 1) > 0.03 else ""


def _more(measured: float, planned: float, what: str) -> str:
    if not measured or not planned or abs(measured / planned - 1) < 0.05:
        return ""
    ratio = measured / planned
    return f"{ratio:.2g} times the planned {what}" if ratio > 1 else f"{ratio:.0%} of the planned {what}"
