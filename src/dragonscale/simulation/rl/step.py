"""A step of reinforcement learning as phases: generation, reward, log-probabilities, updates, weight transfer.

Two planners give the parts. Generation is decode steps of the serving planner (`generation`); updates are steps of the
training planner on packed answers; a pass that only reads log-probabilities is what one more forward pass adds to such
a step. On shared chips the phases follow each other. On two pools answers are generated while the trainer works on
those of the step before, and a step takes as long as the slower of the two, plus the weight transfer.
"""

import math
from dataclasses import dataclass, replace

from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import Slice, Torus, dtype_bytes
from dragonscale.physics.numbers import first_number
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
from dragonscale.training.advice.assessment import chips_of_host
from dragonscale.training.cost.evaluation import Job, Verdict, judge_one
from dragonscale.training.plan.plan import Plan
from dragonscale.training.search.headroom import room_bytes

# Where a phase runs: on one pool, or between both, which then both wait for it.
TRAINER = "trainer"
ROLLOUT = "rollout"
BETWEEN = "between"
IDLE = "idle"


@dataclass(frozen=True)
class Phase:
    """A part of a step: its seconds, and those of them that are exposed (that the step waits for)."""

    name: str
    place: str
    seconds: float
    exposed_s: float


@dataclass(frozen=True)
class RlPlan:
    """A way to run a step.

    The mode (also `separate`: two pools in turns), the framework, a plan and a slice for the trainer, and a plan and a
    slice of all replicas for the engine. `ahead` is the fraction of a step's answers that may run beyond its own;
    `fullest` is the job of the fullest microbatch, if they differ in tokens.
    """

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
        """Chips of trainer and engine."""
        if self.mode == "colocated":
            return self.job.slice.chips
        return self.job.slice.chips + self.pool.chips

    @property
    def engine(self) -> str:
        """The engine's name, with the host time of its executor: Ray adds some to each step of several ranks."""
        if not self.framework.ray or self.rollout.chips <= 1:
            return self.framework.engine
        return f"{self.framework.engine},host.step_s={tables()['executor']['step_s']:g}"

    @property
    def replicas(self) -> int:
        """Replicas of the engine."""
        return max(self.pool.chips // self.rollout.chips, 1)

    @property
    def staleness(self) -> float:
        """Steps by which the oldest weights behind an answer may be old."""
        return 1.0 if self.mode == "one-step-off" else max(self.ahead, 0.0)


@dataclass(frozen=True)
class RlStep:
    """A plan with its judged phases."""

    plan: RlPlan
    work: RlWork
    phases: tuple[Phase, ...]
    generation: Rollout
    train_bytes: float
    moved_bytes: float

    @property
    def seconds(self) -> float:
        """Seconds of a step: the sum of what is exposed."""
        return sum(phase.exposed_s for phase in self.phases)

    @property
    def band(self) -> tuple[float, float]:
        """Seconds between which four of five published steps of the framework would lie (`frameworks.toml`)."""
        errors = self.plan.framework.errors
        return self.seconds * (1 + errors.low), self.seconds * (1 + errors.high)

    @property
    def weighed_s(self) -> float:
        """Seconds in the middle of the framework's band, by which frameworks are compared."""
        return self.seconds * (1 + self.plan.framework.errors.middle)

    @property
    def rate(self) -> float:
        """Tokens trained per second and chip."""
        return self.work.tokens / (self.seconds * self.plan.chips)

    @property
    def engine_share_bytes(self) -> float:
        """Bytes of a chip that an engine which does not sleep keeps while the trainer works."""
        plan = self.plan
        if plan.mode != "colocated" or not plan.framework.stays:
            return 0.0
        return plan.framework.share(plan.mode) * plan.pool.chip.visible

    @property
    def hbm_bytes(self) -> float:
        """Bytes on the fullest chip at the fullest moment."""
        return max(self.train_bytes + self.engine_share_bytes, self.generation.hbm_bytes)

    @property
    def fits(self) -> bool:
        """Whether each phase fits its chips, and the whole run the host's memory."""
        chips = (self.plan.job.slice.chip, self.plan.pool.chip)
        sizes = zip((self.train_bytes + self.engine_share_bytes, self.generation.hbm_bytes), chips, strict=True)
        fits_chips = math.isfinite(self.seconds) and all(size <= chip.visible for size, chip in sizes)
        return fits_chips and self.host_bytes <= self.host_limit_bytes

    @property
    def tight(self) -> bool:
        """Whether the trainer leaves less memory free than measured runs needed beyond their prediction."""
        return self.train_bytes + self.engine_share_bytes > room_bytes(self.plan.job)

    @property
    def host_bytes(self) -> float:
        """Bytes of the fullest host's memory: of each chip the state that trainer and engine keep there, the engine's
        space for swapped sequences, and on one of them the checkpoint as it is read."""
        checkpoint = count_parameters(self.work.model).total * dtype_bytes("bf16")
        return chips_of_host(self.plan.job.slice) * self.host_worker_bytes + checkpoint

    @property
    def host_worker_bytes(self) -> float:
        """The same of one chip's worker."""
        plan, size = self.plan, tables()["host"]["swap_bytes"] + self.moved_bytes
        if plan.mode == "colocated" and plan.framework.sleeps and not plan.framework.stays:
            # asleep, an engine has its weights in the host's memory
            size += count_parameters(self.work.model).total * dtype_bytes("bf16") / plan.rollout.chips
        return size

    @property
    def host_limit_bytes(self) -> float:
        """Bytes of a host's memory that processes may fill before Ray ends them."""
        memory = self.work.host_memory or chips_of_host(self.plan.job.slice) * self.plan.job.slice.chip.host_memory
        return tables()["host"]["threshold"] * memory

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
    """The job as the framework hands it to pipeline stages: some need packed sequences padded to one length."""
    if plan.framework.pads_stages and plan.train.pipe > 1 and not work.padded:
        return replace(plan.job, sequence=work.longest)
    return plan.job


class Judge:
    """Verdicts of a trainer's plans and rollouts of engines for one work, each computed once."""

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
        recomputes = row.prefills_again and ahead > 0
        key = (plan.engine, row.share(plan.mode), plan.rollout, str(plan.pool), ahead, recomputes)
        if key not in self.rollouts:
            shape = (work.prompt, work.lengths, work.generated, work.samples, plan.replicas)
            self.rollouts[key] = generate(deployed(plan), *shape, ahead, recomputes)
        return self.rollouts[key]


def job_key(job: Job) -> tuple[object, ...]:
    """What tells jobs of one work apart."""
    return (job.stack.name, str(job.slice), job.batch, job.sequence, job.documents, job.tuning)


def judge_step(work: RlWork, plan: RlPlan, judge: Judge | None = None) -> RlStep:
    """The phases of a step under a plan."""
    judge = judge or Judge()
    work = handed(work, plan.framework, plan.job.stack.name)
    job, chip = stage_job(work, plan), plan.job.slice.chip
    verdict = judge.verdict(job, plan.train)
    # the host cuts packed sequences apart and reads them back, which slows an update; padded ones need no such work
    slower = float(work.updates)
    if plan.framework.host_bound and not work.padded:
        slower *= tables()["trainer"]["slower"]
    update = slower * first_number(verdict.seconds)
    forward = slower * reading_seconds(job, plan, verdict, judge)
    rollout = judge.rollout(work, plan, max(plan.ahead, 0.0))
    if plan.ahead > 0 and plan.framework.strict_age:
        # no answer is under way for longer than its age may be, so the longest has that many steps
        rollout = replace(
            rollout, seconds=max(rollout.seconds, judge.rollout(work, plan).seconds / math.ceil(plan.ahead))
        )
    weights, optimizer = (state_bytes(verdict, part) for part in ("weights", "optimizer"))
    gradients = 0.0
    if job.stack.name.startswith("megatron"):
        gradients = state_bytes(verdict, "gradients")  # its gradient buffers stay allocated
    moved = 0.0
    if plan.framework.sleeps and not plan.framework.stays:
        moved = _moved(plan, deployed(plan), weights + optimizer + gradients)
    # a reference that takes the policy's place travels over the host link, so many times a step
    swap = 0.0 if work.tuning.rank else plan.framework.reference_copies * weights / chip.host_link
    # where the engine casts them as they arrive, weights travel as the trainer has them
    sent_as = "bf16" if plan.framework.engine_casts else plan.rollout.weights
    volume = count_parameters(work.model).total * dtype_bytes(sent_as)
    card = network_card(job.slice) if plan.framework.sleeps else math.inf
    sent = transfer_seconds(plan.framework.method(plan.mode), volume, card, job.slice.chips)
    scored = work.reward_s + work.reward_passes * forward
    phases = [
        Phase("generation", ROLLOUT, rollout.seconds + rollout.tokens * plan.framework.token_s(plan.mode), 0.0),
        # the last answers wait for their tools; where others are begun ahead, those fill the time
        Phase("tools", ROLLOUT, (work.turns - 1) * work.tool_s if plan.ahead <= 0 else 0.0, 0.0),
        Phase("reward", ROLLOUT, scored, 0.0),
        Phase("logprob", TRAINER, forward if work.old else 0.0, 0.0),
        Phase("reference", TRAINER, forward + swap if work.reference else 0.0, 0.0),
        Phase("critic", TRAINER, forward + update if work.critic else 0.0, 0.0),
        Phase("update", TRAINER, update, 0.0),
        Phase("weight transfer", BETWEEN, sent, 0.0),
    ]
    if plan.mode == "colocated" and plan.framework.sleeps and not plan.framework.stays:
        # the engine sleeps while the trainer works; trainer state moves to the host if both do not fit
        sizes = (weights, optimizer) if moved else (0.0, 0.0)
        phases.append(Phase("offload", BETWEEN, switching_seconds(plan.framework, *sizes, chip.host_link), 0.0))
    shown = exposed([phase for phase in phases if phase.seconds], overlapped=plan.mode in AT_ONCE)
    fullest = verdict if plan.fullest is None else judge.verdict(plan.fullest, plan.train)
    return RlStep(plan, work, shown, rollout, trainer_bytes(work, fullest, plan.framework), moved)


def reading_seconds(job: Job, plan: RlPlan, verdict: Verdict, judge: Judge) -> float:
    """Seconds of a pass that only reads log-probabilities of an update's answers.

    It is what one more forward pass adds to the verdict of that update. Where weights are gathered for each microbatch
    (ZeRO-3), such passes have larger microbatches.
    """
    train, once = plan.train, verdict
    if train.zero == 3 and plan.framework.read_batch > 1:
        train = replace(train, microbatch=train.microbatch * plan.framework.read_batch)
        once = judge.verdict(job, train)
    twice = judge.verdict(replace(job, tuning=replace(job.tuning, passes=job.tuning.passes + 1.0)), train)
    return first_number(twice.seconds) - first_number(once.seconds)


def state_bytes(verdict: Verdict, *parts: str) -> float:
    """Bytes on a chip of some parts of the trainer's state; by default weights and optimizer state."""
    return sum(
        first_number(line.bytes) for line in verdict.ledger.held if line.part in (parts or ("weights", "optimizer"))
    )


def trainer_bytes(work: RlWork, verdict: Verdict, framework: Framework) -> float:
    """Bytes on the fullest chip of the trainer, with a critic's state and a reference's weights beside the policy's;
    some frameworks swap the reference in for the policy instead."""
    size = first_number(verdict.hbm_bytes)
    if work.critic:
        size += state_bytes(verdict)
    # with its adapters switched off the policy is its own reference
    if work.reference and not framework.reference_copies and not work.tuning.rank:
        size += state_bytes(verdict, "weights")
    return size


def exposed(phases: list[Phase], overlapped: bool) -> tuple[Phase, ...]:
    """The phases with what a step waits for.

    On two pools that is the slower pool: the phases of the other are hidden, and it idles for the difference. What both
    take part in is always exposed.
    """
    if not overlapped:
        return tuple(replace(phase, exposed_s=phase.seconds) for phase in phases)
    pool_s = dict.fromkeys((TRAINER, ROLLOUT), 0.0)
    for phase in phases:
        if phase.place in pool_s:
            pool_s[phase.place] += phase.seconds
    slower = max(pool_s, key=lambda pool: pool_s[pool])
    faster = TRAINER if slower == ROLLOUT else ROLLOUT
    shown = [replace(phase, exposed_s=0.0 if phase.place == faster else phase.seconds) for phase in phases]
    return (*shown, Phase(IDLE, faster, pool_s[slower] - pool_s[faster], 0.0))


def deployed(plan: RlPlan) -> Deployment:
    """One replica of the engine, with the fraction of memory that the framework gives it.

    The engine's own AllReduce works up to some number of chips; beyond that it is the library's.
    """
    engine = adjust(load_engine(plan.engine), memory={"share": plan.framework.share(plan.mode)})
    executor = tables()["executor"]
    if plan.rollout.chips > executor["own_all_reduce"] and engine.collectives.library == executor["library"]:
        engine = adjust(engine, collectives={"library": ""})
    return Deployment(plan.job.model, part(plan.pool, plan.rollout.chips), plan.rollout, engine)


def part(whole: Slice, chips: int) -> Slice:
    """So many chips of a slice; on a torus a box that tiles it."""
    if not isinstance(whole.chip.network, Torus):
        return Slice(whole.chip, (chips,))
    return next((candidate for candidate in parts_of(whole) if candidate.chips == chips), whole)


def _moved(plan: RlPlan, deployment: Deployment, state: float) -> float:
    """Bytes of trainer state on a chip that are offloaded to make space for the engine: all if both do not fit at once,
    or always."""
    if plan.mode != "colocated":
        return 0.0
    hbm = plan.job.slice.chip.visible
    tight = state > hbm * (1 - deployment.engine.memory.share)
    return state if tight or plan.framework.always_offloads else 0.0


def network_card(chips: Slice) -> float:
    """Bytes per second that one chip can send to another pool: its share of a server's network cards."""
    network = chips.chip.network
    if isinstance(network, Torus):
        return network.link
    node, *outer = network.levels
    if not outer:
        return node.bandwidth
    return outer[0].bandwidth / node.degree
