"""A step of reinforcement learning as phases: answers generated and scored, log-probabilities, updates, weights sent.

Two planners give the parts: generation is decode steps of the serving planner (`generation`), updates are steps of the
training planner on packed answers, and a pass that only reads log-probabilities is what one more forward pass adds to
such a step. On shared chips the phases follow each other. On two pools answers are made while the trainer works on
those of the step before, and the step is the slower of the two and the weights' way from one to the other.
"""

import math
from dataclasses import dataclass, replace

from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice, Torus, dtype_bytes
from dragonscale.serving.engine.engine import adjust, load_engine
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.space.space import parts_of
from dragonscale.simulation.rl.frameworks import (
    AT_ONCE,
    Framework,
    switching_seconds,
    tables,
    transfer_seconds,
)
from dragonscale.simulation.rl.generation import Rollout, generate
from dragonscale.simulation.rl.work import RlWork, handed
from dragonscale.training.cost.evaluation import Job, Verdict, first, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.tuning import Tuning
from dragonscale.training.search.headroom import room_bytes

TRAINER, ROLLOUT, BETWEEN = "trainer", "rollout", "between"
"""Where a phase runs: it is added to its pool's others, or both pools wait for it."""
IDLE = "idle"


@dataclass(frozen=True)
class Phase:
    """A part of a step: its seconds, and those of them that the step waits for."""

    name: str
    place: str
    seconds: float
    exposed_s: float


@dataclass(frozen=True)
class RlPlan:
    """A way to run it: the mode (also `separate`: two pools in turns), the framework, a plan and a slice for the
    trainer and a plan and a slice of all replicas for the engine; with `ahead`, the part of a step's answers that may
    be under way beyond its own; `fullest` is the job of the fullest microbatch, where they differ in tokens."""

    mode: str
    framework: Framework
    job: Job
    train: Plan
    rollout: ServingPlan
    pool: Slice
    ahead: float = 0.0
    fullest: Job | None = None

    @property
    def chips(self) -> int:
        shared = self.mode == "colocated"
        return self.job.slice.chips if shared else self.job.slice.chips + self.pool.chips

    @property
    def engine(self) -> str:
        """The engine's name, with what its executor's host takes."""
        late = self.framework.ray and self.rollout.chips > 1
        return self.framework.engine + (f",host.step_s={tables()['executor']['step_s']:g}" if late else "")

    @property
    def replicas(self) -> int:
        return max(self.pool.chips // self.rollout.chips, 1)

    @property
    def staleness(self) -> float:
        """Steps that the oldest weights behind an answer may be old."""
        return 1.0 if self.mode == "one-step-off" else max(self.ahead, 0.0)


@dataclass(frozen=True)
class RlStep:
    """A plan judged."""

    plan: RlPlan
    work: RlWork
    phases: tuple[Phase, ...]
    generation: Rollout
    train_bytes: float
    moved_bytes: float

    @property
    def seconds(self) -> float:
        return sum(phase.exposed_s for phase in self.phases)

    @property
    def band(self) -> tuple[float, float]:
        """Between which times four of five published steps of the framework were (`frameworks.toml`)."""
        found = self.plan.framework.errors
        return self.seconds * (1 + found.low), self.seconds * (1 + found.high)

    @property
    def weighed_s(self) -> float:
        """The step in the middle of its framework's band, by which frameworks are compared."""
        return self.seconds * (1 + self.plan.framework.errors.middle)

    @property
    def rate(self) -> float:
        """Tokens trained per second and chip."""
        return self.work.tokens / (self.seconds * self.plan.chips)

    @property
    def hbm_bytes(self) -> float:
        """On the fullest chip at the fullest moment."""
        return max(self.train_bytes, self.generation.hbm_bytes)

    @property
    def fits(self) -> bool:
        """Whether each phase fits its chips."""
        chips = (self.plan.job.slice.chip, self.plan.pool.chip)
        held = zip((self.train_bytes, self.generation.hbm_bytes), chips, strict=True)
        return math.isfinite(self.seconds) and all(size <= chip.visible for size, chip in held)

    @property
    def tight(self) -> bool:
        """Whether the trainer leaves less memory free than measured runs needed beyond what was predicted."""
        return self.train_bytes > room_bytes(self.plan.job)

    @property
    def cost_usd(self) -> float | None:
        """What all chips of the step cost; None where the price of some of them is not known."""
        slices = [self.plan.job.slice]
        if self.plan.mode != "colocated":
            slices.append(self.plan.pool)
        usd_per_h = 0.0
        for part_of_chips in slices:
            if part_of_chips.chip.price is None:
                return None
            usd_per_h += part_of_chips.chip.price * part_of_chips.chips
        return usd_per_h * self.seconds / 3600

    def phase(self, name: str) -> float:
        """Seconds of a phase; 0 where there is none."""
        return sum(phase.seconds for phase in self.phases if phase.name == name)


def stage_job(work: RlWork, plan: RlPlan) -> Job:
    """The job as the framework hands it to pipeline stages: packed sequences padded to one length, where it needs
    that."""
    if plan.framework.pads_stages and plan.train.pipe > 1 and not work.padded:
        return replace(plan.job, sequence=work.longest)
    return plan.job


class Judge:
    """Verdicts of a trainer's plans and batches of answers of engines: of one work, each is worked out once."""

    def __init__(self) -> None:
        self.verdicts: dict[tuple[object, ...], Verdict] = {}
        self.rollouts: dict[tuple[object, ...], Rollout] = {}

    def verdict(self, job: Job, plan: Plan) -> Verdict:
        key = (*job_key(job), plan)
        if key not in self.verdicts:
            self.verdicts[key] = judge_one(job, plan)
        return self.verdicts[key]

    def rollout(self, work: RlWork, plan: RlPlan, ahead: float = 0.0) -> Rollout:
        row = plan.framework
        again = row.prefills_again and ahead > 0
        key = (plan.engine, row.share(plan.mode), plan.rollout, str(plan.pool), ahead, again)
        if key not in self.rollouts:
            shape = (work.prompt, work.lengths, work.generated, work.samples, plan.replicas)
            self.rollouts[key] = generate(deployed(plan), *shape, ahead, again)
        return self.rollouts[key]


def job_key(job: Job) -> tuple[object, ...]:
    """What tells jobs of one work apart."""
    return (job.stack.name, str(job.slice), job.batch, job.sequence, job.documents, job.tuning.passes)


def judge_step(work: RlWork, plan: RlPlan, judge: Judge | None = None) -> RlStep:
    """The phases of a step under a plan."""
    judge = judge or Judge()
    work = handed(work, plan.framework, plan.job.stack.name)
    job, chip = stage_job(work, plan), plan.job.slice.chip
    verdict = judge.verdict(job, plan.train)
    # sequences of a pack are cut out and read back by the host, those that are padded are not
    packs = plan.framework.host_bound and not work.padded
    slower = work.updates * (tables()["trainer"]["slower"] if packs else 1.0)
    update = slower * first(verdict.seconds)
    forward = slower * reading_seconds(job, plan, verdict, judge)
    made = judge.rollout(work, plan, max(plan.ahead, 0.0))
    if plan.ahead > 0 and plan.framework.strict_age:
        # no answer is under way for longer than its age may be, so the longest has that many steps
        made = replace(made, seconds=max(made.seconds, judge.rollout(work, plan).seconds / math.ceil(plan.ahead)))
    weights, optimizer = (state_bytes(verdict, part) for part in ("weights", "optimizer"))
    kept = state_bytes(verdict, "gradients") if job.stack.name.startswith("megatron") else 0.0  # buffers that stay
    moved = _moved(plan, deployed(plan), weights + optimizer + kept)
    swap = plan.framework.reference_copies * weights / chip.host_link
    # where the engine casts them as they arrive, weights travel as the trainer has them
    sent_as = "bf16" if plan.framework.engine_casts else plan.rollout.weights
    volume = count_parameters(work.model).total * dtype_bytes(sent_as)
    card = network_card(job.slice) if plan.framework.sleeps else math.inf
    sent = transfer_seconds(plan.framework.method(plan.mode), volume, card, job.slice.chips)
    scored = work.reward_s + work.reward_passes * forward
    phases = [
        Phase("generation", ROLLOUT, made.seconds + made.tokens * plan.framework.token_s(plan.mode), 0.0),
        # the last answers wait for their tools; where others are begun ahead, those fill the time
        Phase("tools", ROLLOUT, (work.turns - 1) * work.tool_s if plan.ahead <= 0 else 0.0, 0.0),
        Phase("reward", ROLLOUT, scored, 0.0),
        Phase("logprob", TRAINER, forward if work.old else 0.0, 0.0),
        Phase("reference", TRAINER, forward + swap if work.reference else 0.0, 0.0),
        Phase("critic", TRAINER, forward + update if work.critic else 0.0, 0.0),
        Phase("update", TRAINER, update, 0.0),
        Phase("weight transfer", BETWEEN, sent, 0.0),
    ]
    if plan.mode == "colocated" and plan.framework.sleeps:
        sizes = (weights, optimizer) if moved else (0.0, 0.0)
        phases.append(Phase("offload", BETWEEN, switching_seconds(plan.framework, *sizes, chip.host_link), 0.0))
    shown = exposed([phase for phase in phases if phase.seconds], overlapped=plan.mode in AT_ONCE)
    fullest = verdict if plan.fullest is None else judge.verdict(plan.fullest, plan.train)
    return RlStep(plan, work, shown, made, trainer_bytes(work, fullest, plan.framework), moved)


def reading_seconds(job: Job, plan: RlPlan, verdict: Verdict, judge: Judge) -> float:
    """What a pass that only reads log-probabilities of an update's answers takes: what one more forward pass adds to
    the verdict of that update. Where weights are gathered for each microbatch, such passes have larger ones."""
    train, once = plan.train, verdict
    if train.zero == 3 and plan.framework.read_batch > 1:
        train = replace(train, microbatch=train.microbatch * plan.framework.read_batch)
        once = judge.verdict(job, train)
    twice = judge.verdict(replace(job, tuning=Tuning(passes=1.0)), train)
    return first(twice.seconds) - first(once.seconds)


def state_bytes(verdict: Verdict, *parts: str) -> float:
    """Bytes of weights and optimizer state on a chip."""
    return sum(first(line.bytes) for line in verdict.ledger.held if line.part in (parts or ("weights", "optimizer")))


def trainer_bytes(work: RlWork, verdict: Verdict, framework: Framework) -> float:
    """Bytes on the fullest chip of the trainer; a critic's state lies beside the policy's, and so do a reference's
    weights where they do not take the policy's place."""
    critic = state_bytes(verdict) if work.critic else 0.0
    beside = work.reference and not framework.reference_copies
    return first(verdict.hbm_bytes) + critic + (state_bytes(verdict, "weights") if beside else 0.0)


def exposed(phases: list[Phase], overlapped: bool) -> tuple[Phase, ...]:
    """What a step waits for. On two pools that is the slower of them, the phases of the other shown as hidden, and how
    long the faster idles; what both take part in is waited for always."""
    if not overlapped:
        return tuple(replace(phase, exposed_s=phase.seconds) for phase in phases)
    taken = {place: sum(one.seconds for one in phases if one.place == place) for place in (TRAINER, ROLLOUT)}
    slower = max(taken, key=lambda place: taken[place])
    found = [replace(one, exposed_s=one.seconds if one.place in (slower, BETWEEN) else 0.0) for one in phases]
    idle = taken[slower] - min(taken.values())
    return (*found, Phase(IDLE, TRAINER if slower == ROLLOUT else ROLLOUT, idle, 0.0))


def deployed(plan: RlPlan) -> Deployment:
    """One replica of the engine, with the part of memory that the framework gives it; an AllReduce of the engine's own
    goes up to so many chips, beyond which it is the library's."""
    engine = adjust(load_engine(plan.engine), memory={"share": plan.framework.share(plan.mode)})
    executor = tables()["executor"]
    if plan.rollout.chips > executor["own_all_reduce"] and engine.collectives.library == executor["library"]:
        engine = adjust(engine, collectives={"library": ""})
    return Deployment(plan.job.model, part(plan.pool, plan.rollout.chips), plan.rollout, engine)


def part(piece: Slice, chips: int) -> Slice:
    """So many chips of a slice; on a torus a box that tiles it."""
    if not isinstance(piece.chip.network, Torus):
        return Slice(piece.chip, (chips,))
    return next((one for one in parts_of(piece) if one.chips == chips), piece)


def _moved(plan: RlPlan, deployment: Deployment, state: float) -> float:
    """Bytes of trainer state on a chip that make room for the engine: all where both do not fit at once, or always."""
    if plan.mode != "colocated":
        return 0.0
    hbm = plan.job.slice.chip.visible
    tight = state > hbm * (1 - deployment.engine.memory.share)
    return state if tight or plan.framework.always_offloads else 0.0


def network_card(piece: Slice) -> float:
    """Bytes a second that leave a chip for another pool: its part of a server's network cards."""
    network = piece.chip.network
    if isinstance(network, Torus):
        return network.link
    node, *outer = network.levels
    return outer[0].bandwidth / node.degree if outer else node.bandwidth
