"""Whether a plan is of what was recorded: another model, batch, length or number of devices makes every line beside it
wrong.

FLOPs of matmuls with dense weights are the measure. They do not depend on how well a program runs; recomputing changes
them by a third at most, and then not forward and backward alike. Experts are left out: compilers may multiply with all
of them, which is a finding and no other model. Sizes read off the shapes say what differs; by themselves they are no
proof, as a size may be read wrongly.
"""

from collections import defaultdict
from collections.abc import Iterable

from dragonscale.evidence.profiles.beside import ExpectedStep
from dragonscale.evidence.profiles.per_op import StepOps
from dragonscale.evidence.profiles.records import ProfileReading
from dragonscale.models import load_model
from dragonscale.plan.ledger import COLLECTIVES

_OTHER = "The plan is not of what was recorded: {}."
_EXPERTS = ("experts", "moe", "router")
_TRAINING = ("backward", "update", "recompute", "gradient")
_APART = 1.6
"""FLOPs that differ by more than this are not those of the plan, whatever is recomputed."""
_SERVED = 1.25
"""The same of serving, where nothing is recomputed; an engine may pad its batch."""
_ALIKE = 0.05


def plan_differs(
    planned: ExpectedStep, reading: ProfileReading, step: StepOps, sizes: dict[str, float]
) -> tuple[str, ...]:
    """Sentences on why the plan is not of this recording; none where it may well be."""
    wrong = [_OTHER.format(why) for why in (_phases(planned, reading), _devices(planned, reading)) if why]
    if wrong and not reading.static:
        return (*wrong, "What is laid beside it does not fit.")
    ran = ((role.kind, role.section, role.phase, step.amount(one, "flops")) for one, role in step.ran_roles)
    lines = ((line.kind, line.part, line.phase, float(line.total("flops"))) for line in planned.lines)
    measured, meant = _flops(ran), _flops(lines)
    found = _dense(planned, measured, meant, sizes) or _length(planned, measured, meant, sizes)
    return tuple(_OTHER.format(why) for why in found[:1])


def _phases(planned: ExpectedStep, reading: ProfileReading) -> str:
    """Training against serving: a backward pass is there or it is not."""
    timed = sum(group.exposed_s for group in reading.groups) or 1.0
    trained = sum(group.exposed_s for group in reading.groups if group.phase in _TRAINING) / timed
    named = sum(group.exposed_s for group in reading.groups if group.phase) / timed
    program = planned.request.program
    if program != "train" and trained > 0.2:
        return f"it is of {program}, and {trained:.0%} of the profile is a backward pass and updates"
    if program == "train" and named > 0.8 and not trained and not reading.static:
        return "it trains, and the profile has no backward pass"
    return ""


def _devices(planned: ExpectedStep, reading: ProfileReading) -> str:
    """More devices than planned; or fewer, and nothing that they would send each other (else it may be one process of
    many)."""
    chips = planned.piece.chips
    sends = any(line.kind in COLLECTIVES and line.total("wire_bytes") for line in planned.lines)
    sent = any(move.kind in COLLECTIVES for move in reading.communication)
    if reading.devices > chips:
        return f"it is of {chips}, and the profile of {reading.devices} devices"
    if reading.devices < chips and sends and not sent:
        return f"it is of {chips} devices, and the profile of {reading.devices} that sent nothing to others"
    return ""


Flops = dict[tuple[str, str], float]
"""By `dense` or `attention`, and phase."""


def _flops(work: Iterable[tuple[str, str, str, float]]) -> Flops:
    """FLOPs of attention and of matmuls without experts, from kind, part, phase and FLOPs of ops or lines."""
    found: Flops = defaultdict(float)
    for kind, part, phase, flops in work:
        if kind == "attention" or (kind == "matmul" and part not in _EXPERTS):
            found["attention" if kind == "attention" else "dense", phase] += flops
    return found


def _dense(planned: ExpectedStep, measured: Flops, meant: Flops, sizes: dict[str, float]) -> list[str]:
    """Matmuls with weights: many more or fewer FLOPs, or forward and backward differ alike."""
    ratio = _ratio(measured, meant, "dense")
    if ratio is None:
        return []
    most = _APART if planned.request.program == "train" else _SERVED
    forward, backward = (_ratio(measured, meant, "dense", phase) for phase in ("forward", "backward"))
    alike = forward and backward and abs(forward / backward - 1) < _ALIKE and abs(forward - 1) > _ALIKE
    if 1 / most < ratio < most and not alike:
        return []
    model = load_model(planned.request.model)
    width, layers = sizes.get("d_model"), sizes.get("layers")
    if width and width != model.d_model:
        return [f"these shapes are of d_model {width:,.0f}, the plan's of {model.d_model:,.0f}"]
    if layers and layers != model.n_layers and planned.mesh.get("pipe", 1) == 1:
        return [f"these are {layers:,.0f} layers, the plan's {model.n_layers:,.0f}"]
    rest = f" (its matmuls see {sizes['tokens']:,.0f} tokens at once)" if "tokens" in sizes else ""
    return [
        f"its matmuls have {_times(ratio)} the plan's FLOPs{rest}; the plan is of {planned.request.batch:,} sequences "
        f"of {planned.request.sequence:,} tokens of {planned.request.model}"
    ]


def _length(planned: ExpectedStep, measured: Flops, meant: Flops, sizes: dict[str, float]) -> list[str]:
    """The same tokens in sequences of another length: attention tells."""
    ratio, length = _ratio(measured, meant, "attention"), sizes.get("seq")
    if ratio is None or 1 / _APART < ratio < _APART or not length or planned.request.program == "decode":
        return []
    if length == planned.request.sequence:
        return []
    return [f"its sequences have {length:,.0f} tokens, the plan's {planned.request.sequence:,}"]


def _ratio(measured: Flops, meant: Flops, kind: str, phase: str | None = None) -> float | None:
    def total(work: Flops) -> float:
        return sum(flops for (what, when), flops in work.items() if what == kind and phase in (None, when))

    ours, theirs = total(measured), total(meant)
    return ours / theirs if ours and theirs else None


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times" if ratio >= 1 else f"{ratio:.0%} of"
