"""What better hardware would change: each number of the chip raised in turn, the plan searched anew.

A chip is data, so a chip that does not exist is the same chip with other facts (`Chip.with_facts`). The efficiency
profiles stay as they are: they say which part of a datasheet rate is reached.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from dragonscale.physics.hardware import Chip, Slice
from dragonscale.physics.numbers import first_number
from dragonscale.training.cost.evaluation import Job, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.timers import IDLE_POWER, POWER_EXPONENT
from dragonscale.training.search.search import Progress, search, shared
from dragonscale.training.search.space import Space

COMPUTE = "FLOP/s"
RAISE = 1.1

# The factors by which a number is raised when the smallest sufficient change is searched.
STEPS = (1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0)


@dataclass(frozen=True)
class Knob:
    """A hardware number, or several that are raised together, with its title."""

    title: str
    paths: tuple[str, ...]


def knobs(slice_: Slice) -> list[Knob]:
    """The numbers of a slice's chip that a designer could raise; those of wires that it does not use are left out."""
    chip = slice_.chip
    rates = tuple(path for path in chip.facts if path.startswith(("matrix.", "vector.")))
    levels = [path for path in chip.facts if path.startswith("levels.") and path.endswith(".bandwidth")]
    between_nodes = tuple(path for path in levels if ".node." not in path)
    candidates = [
        Knob(COMPUTE, rates),
        Knob("HBM bandwidth", ("memory.hbm.bandwidth",)),
        Knob("HBM capacity", ("memory.hbm.capacity",)),
        Knob("ICI bandwidth", ("ici.link",)),
        Knob("DCN bandwidth", ("dcn.egress",) if slice_.pods > 1 else ()),
        Knob(f"{_inside_node(chip)} bandwidth", ("levels.node.bandwidth",)),
        Knob("NVLink bridge bandwidth", ("levels.node.bridge",)),
        Knob("network bandwidth", between_nodes),
    ]
    return [knob for knob in candidates if knob.paths and all(path in chip.facts for path in knob.paths)]


def _inside_node(chip: Chip) -> str:
    """The name of the links inside a node: an L40S has no NVLink to widen, an MI300X another name for it."""
    fact = chip.facts.get("levels.node.bandwidth")
    for name in ("PCIe", "Infinity Fabric"):
        if fact is not None and fact.note.startswith(name):
            return name
    return "NVLink" if chip.kind == "gpu" else "domain"


def raised(chip: Chip, knob: Knob, factor: float) -> Chip:
    """The chip with one number raised by a factor. More FLOP/s come with the power that they draw, or the chip would
    have to slow down again."""
    better = chip.with_facts(**{path: float(chip.facts[path].value) * factor for path in knob.paths})
    if knob.title == COMPUTE and chip.power:
        return replace(better, power=chip.power * (IDLE_POWER + (1 - IDLE_POWER) * factor**POWER_EXPONENT))
    return better


def on_chip(job: Job, chip: Chip) -> Job:
    """The same job on another kind of chip in the same shape."""
    return replace(job, slice=Slice(chip, job.slice.shape, job.slice.pods))


@dataclass(frozen=True)
class Change:
    """A number raised by a factor: the seconds of the best step then, and its plan."""

    knob: Knob
    factor: float
    seconds: float
    plan: Plan
    doubled: float = 0.0
    """Seconds of the step with the number doubled and the plan that was best before."""


def sensitivity(job: Job, space: Space, best: Plan, seconds: float, progress: Progress | None = None) -> list[Change]:
    """Each number raised by a tenth, most useful first. The plan that was best before, which took so many `seconds`,
    stays a candidate, so nothing gets slower."""
    changes: list[Change] = []
    all_knobs = knobs(job.slice)
    for done, knob in enumerate(all_knobs):
        improved = on_chip(job, raised(job.slice.chip, knob, RAISE))
        improved_s, plan = first_number(judge_one(improved, best).seconds), best  # the old plan on the better chip
        candidates = search(improved, space, 1, shared(progress, done, len(all_knobs)), slack=0.0).best
        if candidates and candidates[0].seconds < improved_s:
            improved_s, plan = candidates[0].seconds, candidates[0].plan
        elif not candidates and seconds < improved_s:
            improved_s = seconds
        doubled = first_number(judge_one(on_chip(job, raised(job.slice.chip, knob, 2.0)), best).seconds)
        changes.append(Change(knob, RAISE, improved_s, plan, doubled))
    return sorted(changes, key=lambda change: change.seconds)


def smallest_change(job: Job, plan: Plan, enough: Callable[[Job, Plan], bool]) -> Change | None:
    """The number that has to be raised least until `enough` holds for the plan; None if none does within eight
    times."""
    best: Change | None = None
    for knob in knobs(job.slice):
        for factor in STEPS:
            if best is not None and factor >= best.factor:
                break  # another number needs less
            other = on_chip(job, raised(job.slice.chip, knob, factor))
            if enough(other, plan):
                best = Change(knob, factor, first_number(judge_one(other, plan).seconds), plan)
                break
    return best


def loss_shrinks(name: str, share: float) -> Callable[[Job, Plan], bool]:
    """A test of a plan: whether the exposed seconds of a term are at most a share of its step."""

    def enough(job: Job, plan: Plan) -> bool:
        verdict = judge_one(job, plan)
        return verdict.ledger.by("term", "exposed_s").get(name, 0.0) <= share * verdict.seconds

    return enough
