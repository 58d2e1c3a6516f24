"""A run of many steps as a discrete-event simulation: answers of drawn lengths on every replica, a queue, a trainer.

All answers of a replica gain a token in each of its decode steps, so a replica has a clock that counts steps: an answer
ends when the clock has advanced by its length, and the time of a step follows from how many answers run. Answers may
stop for tools between turns. The trainer takes the oldest finished answers, works as long as the planner says for so
many tokens, and sends new weights, for which every replica stops. How far answers may run ahead is bounded by how many
are begun; where the framework bounds the age of weights, an answer that would become too old is waited for.
"""

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy

from dragonscale.serving.iteration.iteration import decode
from dragonscale.serving.iteration.phases import iteration_cost
from dragonscale.simulation.rl.generation import room_for
from dragonscale.simulation.rl.step import BETWEEN, ROLLOUT, TRAINER, RlStep, deployed


@dataclass(frozen=True)
class RunTerms:
    """How long a run is, and what happens in it.

    A replica fails once in `mtbf_s` on average (0: never), begins its answers again, and is back after `restart_s`.
    From a step on there may be another number of replicas (`engines`: step and how many).
    """

    steps: int = 100
    seed: int = 0
    mtbf_s: float = 0.0
    restart_s: float = 120.0
    engines: tuple[tuple[int, int], ...] = ()


@dataclass
class Answer:
    """A running answer: its output tokens, those left of each turn, and the version of the weights it began with."""

    tokens: float
    left: list[float]
    version: int


@dataclass
class RolloutEngine:
    """A replica: its clock of decode steps, and running answers by the clock at which their turn ends."""

    number: int
    clock: float = 0.0
    since: float = 0.0
    up: bool = True
    events: int = 0
    busy_s: float = 0.0
    active: list[tuple[float, int, Answer]] = field(default_factory=list[tuple[float, int, Answer]])


@dataclass
class SimulatedRlRun:
    """What happened in a run.

    Seconds of each step, the age of the weights behind each trained answer, answers that waited in the queue as each
    step began, counts of answers begun, trained on and begun again, and spans for a timeline (what, where, start,
    seconds).
    """

    step_s: list[float] = field(default_factory=list[float])
    staleness: list[int] = field(default_factory=list[int])
    queued: list[int] = field(default_factory=list[int])
    begun: int = 0
    trained: int = 0
    again: int = 0
    failures: int = 0
    in_flight: int = 0
    waiting: int = 0
    engine_busy: float = 0.0
    trainer_busy: float = 0.0
    spans: list[tuple[str, str, float, float]] = field(default_factory=list[tuple[str, str, float, float]])


class RunSimulation:
    """The state of a run, and the events that change it."""

    def __init__(self, step: RlStep, terms: RunTerms) -> None:
        plan, work, rollout = step.plan, step.work, step.generation
        self.step, self.terms, self.work = step, terms, work
        self.random = numpy.random.default_rng(terms.seed)
        self.batch = work.answers
        self.limit = plan.staleness
        strict = plan.mode != "async" or plan.framework.strict_age
        self.oldest = math.ceil(self.limit) if strict else math.inf
        deployment = deployed(plan)
        lengths = work.lengths.draw(512)
        room = room_for(deployment, work.prompt / work.samples, lengths.repeat(math.ceil(rollout.together / 512) + 1))
        self.room = max(room, rollout.together, 1)
        sizes = numpy.arange(1, self.room + 1)
        keys = work.prompt + float((lengths**2).sum() / lengths.sum()) / 2
        step_s = numpy.broadcast_to(iteration_cost(deployment, decode(sizes, keys)).expected, sizes.shape)
        # prompts, and what the host does with each token, are a time of every token
        each = rollout.prefill_s / rollout.tokens + plan.framework.token_s(plan.mode)
        self.decode_s = (step_s + each * sizes).tolist()
        where = {pool: [phase for phase in step.phases if phase.place == pool] for pool in (TRAINER, ROLLOUT, BETWEEN)}
        self.train_s = sum(phase.seconds for phase in where[TRAINER] if phase.name != "idle")
        self.between_s = sum(phase.seconds for phase in where[BETWEEN])
        self.reward_s = sum(phase.seconds for phase in where[ROLLOUT] if phase.name == "reward")
        self.engines = [RolloutEngine(number) for number in range(plan.replicas)]
        self.now, self.version, self.training = 0.0, 0, False
        self.paused = False
        self.queue: list[Answer] = []
        self.open: Counter[int] = Counter()
        self.running: Counter[int] = Counter()
        self.drains = plan.mode == "one-step-off"
        self.agenda: list[tuple[float, int, str, Any]] = []
        self.order, self.told, self.result = 0, 0.0, SimulatedRlRun()

    def run(self) -> SimulatedRlRun:
        """All steps."""
        for engine in self.engines:
            self._may_fail(engine)
        self._fill()
        while len(self.result.step_s) < self.terms.steps:
            self.now, _, what, subject = heapq.heappop(self.agenda)
            getattr(self, f"_{what}")(subject)
        out = self.result
        tools = sum(what == "resume" for _, _, what, _ in self.agenda)
        out.waiting, out.in_flight = len(self.queue), tools + sum(len(engine.active) for engine in self.engines)
        for engine in self.engines:
            self._advance(engine)
        out.engine_busy = sum(engine.busy_s for engine in self.engines) / (len(self.engines) * self.now)
        out.trainer_busy /= self.now
        return out

    def _at(self, seconds: float, what: str, subject: Any = None) -> None:
        self.order += 1
        heapq.heappush(self.agenda, (self.now + seconds, self.order, what, subject))

    def _pace(self, engine: RolloutEngine) -> float:
        return self.decode_s[min(len(engine.active), self.room) - 1]

    def _advance(self, engine: RolloutEngine) -> None:
        """Bring a replica's clock to now."""
        if engine.active and engine.up and not self.paused:
            # all active answers gained as many tokens as steps fit into the time
            engine.clock += (self.now - engine.since) / self._pace(engine)
            engine.busy_s += self.now - engine.since
        engine.since = self.now

    def _schedule(self, engine: RolloutEngine) -> None:
        """Schedule the next end of a turn; later changes of the batch invalidate it by its event number."""
        engine.events += 1
        if engine.active and engine.up and not self.paused:
            wait = max(engine.active[0][0] - engine.clock, 0.0) * self._pace(engine)
            self._at(wait, "turn", (engine, engine.events))

    def _join(self, engine: RolloutEngine, answer: Answer) -> None:
        self._advance(engine)
        self.order += 1
        heapq.heappush(engine.active, (engine.clock + answer.left[0], self.order, answer))

    def _fill(self) -> None:
        """Begin as many answers as staleness allows and replicas have space for, on the emptiest first."""
        allowed = math.floor((self.version + 1 + self.limit) * self.batch)
        if math.isinf(self.oldest):  # answers that the trainer has taken free a place
            allowed = self.result.trained + math.floor((1 + self.limit) * self.batch)
        if self.drains and any(self.running[version] for version in self.running if version < self.version):
            return  # weights arrive once the batch before has ended
        changed: dict[int, RolloutEngine] = {}
        up = [(len(engine.active), engine.number) for engine in self.engines if engine.up]
        heapq.heapify(up)
        while up and self.result.begun < allowed and up[0][0] < self.room and not self.paused:
            engine = self.engines[up[0][1]]
            tokens = float(self._draw())
            parts = [1.0]
            if self.work.turns > 1:
                parts = self.random.dirichlet([4.0] * self.work.turns)  # turns of similar length
            answer = Answer(tokens, [float(part) * tokens for part in parts], self.version)
            self.result.begun += 1
            self.open[self.version] += 1
            self.running[self.version] += 1
            self._join(engine, answer)
            changed[engine.number] = engine
            heapq.heapreplace(up, (len(engine.active), engine.number))
        for engine in changed.values():
            self._schedule(engine)

    def _draw(self) -> float:
        lengths = self.work.lengths
        if lengths.measured:
            return self.random.choice(lengths.measured)
        return min(max(lengths.median * math.exp(lengths.spread * self.random.standard_normal()), 1.0), lengths.cap)

    def _turn(self, subject: tuple[RolloutEngine, int]) -> None:
        """A turn has ended: the answer goes to a tool, or into the queue."""
        engine, event = subject
        if event != engine.events:
            return  # the batch has changed since this end was scheduled
        self._advance(engine)
        while engine.active and engine.active[0][0] <= engine.clock + 1e-6:
            answer = heapq.heappop(engine.active)[2]
            answer.left.pop(0)
            if answer.left:
                self._at(float(self.random.exponential(self.work.tool_s)), "resume", answer)
            else:
                self.running[answer.version] -= 1
                self.queue.append(answer)
        self._schedule(engine)
        self._fill()
        self._train()

    def _resume(self, answer: Answer) -> None:
        """A tool has answered; the next turn runs on the emptiest replica."""
        engine = min(
            (engine for engine in self.engines if engine.up), key=lambda engine: len(engine.active), default=None
        )
        if engine is None:
            self._at(self.terms.restart_s, "resume", answer)
            return
        self._join(engine, answer)
        self._schedule(engine)

    def _train(self) -> None:
        """Begin an update with the oldest finished answers, once there are enough and no answer gets too old."""
        if self.training or len(self.queue) < self.batch:
            return
        self.queue.sort(key=lambda answer: answer.version)
        batch = self.queue[: self.batch]
        # versions of the weights of answers that would still be untrained
        left = self.open - Counter(answer.version for answer in batch)
        if not self._in_time(left):
            return
        self.open, self.queue = left, self.queue[self.batch :]
        self.training = True
        self.result.staleness += [self.version - answer.version for answer in batch]
        self.result.trained += len(batch)
        self.result.queued.append(len(self.queue))
        tokens = sum(answer.tokens for answer in batch) + self.batch * self.work.prompt
        seconds = self.reward_s + self.train_s * tokens / self.work.tokens
        self.result.trainer_busy += seconds
        self.result.spans.append(("logprob and update", "trainer", self.now, seconds))
        self._at(seconds, "updated")
        self._fill()

    def _in_time(self, left: "Counter[int]") -> bool:
        """Whether all answers that are left, by version, can still be trained on before their weights are too old: one
        batch of those with a step to go, two of those with two at most, and so on."""
        if math.isinf(self.oldest):
            return True
        # due[i]: answers that must be trained on within i more steps
        first = self.version - int(self.oldest)
        due = (
            sum(count for version, count in left.items() if version <= first + step)
            for step in range(int(self.oldest) + 1)
        )
        return all(count <= step * self.batch for step, count in enumerate(due))

    def _updated(self, _: None) -> None:
        """Send the new weights to the replicas, which stop for it."""
        self._stop(True)
        self.result.spans.append(("weight transfer", "both", self.now, self.between_s))
        self._at(self.between_s, "sent")

    def _stop(self, paused: bool) -> None:
        for engine in self.engines:
            self._advance(engine)
        self.paused = paused
        for engine in self.engines:
            self._schedule(engine)

    def _sent(self, _: None) -> None:
        """A step is over."""
        self._stop(False)
        self.version, self.training = self.version + 1, False
        self.result.step_s.append(self.now - self.told)
        self.result.spans.append((f"step {self.version}", "steps", self.told, self.now - self.told))
        self.told = self.now
        for step, count in self.terms.engines:
            if step == self.version:
                self._resize(count)
        self._fill()
        self._train()

    def _resize(self, count: int) -> None:
        """Another number of replicas; answers of those that go begin again elsewhere."""
        for engine in self.engines[count:]:
            self._lose(engine)
        self.engines = self.engines[:count] + [
            RolloutEngine(n, since=self.now) for n in range(len(self.engines), count)
        ]

    def _may_fail(self, engine: RolloutEngine) -> None:
        if self.terms.mtbf_s:
            self._at(float(self.random.exponential(self.terms.mtbf_s)), "fail", engine)

    def _fail(self, engine: RolloutEngine) -> None:
        if engine not in self.engines:
            return
        self._lose(engine)
        self.result.failures += 1
        self.result.spans.append(("restart", f"engine {engine.number}", self.now, self.terms.restart_s))
        self._at(self.terms.restart_s, "recover", engine)

    def _lose(self, engine: RolloutEngine) -> None:
        """A replica goes; its answers begin again, with all their tokens, on others."""
        self._advance(engine)
        engine.up = False
        for _, _, answer in engine.active:
            answer.left = [answer.tokens]
            self.result.again += 1
            self._at(0.0, "resume", answer)
        engine.active = []
        self._schedule(engine)

    def _recover(self, engine: RolloutEngine) -> None:
        engine.up, engine.since = True, self.now
        self._may_fail(engine)
        self._fill()


def simulate_run(step: RlStep, terms: RunTerms) -> SimulatedRlRun:
    """A run of a plan that was judged; the same seed gives the same run."""
    return RunSimulation(step, terms).run()


def run_trace(run: SimulatedRlRun) -> dict[str, Any]:
    """Its spans as a timeline for ui.perfetto.dev."""
    tracks = {track: number for number, track in enumerate(dict.fromkeys(span[1] for span in run.spans))}
    labels = [{"name": "thread_name", "ph": "M", "pid": 1, "tid": n, "args": {"name": p}} for p, n in tracks.items()]
    spans = [
        {"name": name, "ph": "X", "ts": start * 1e6, "dur": seconds * 1e6, "pid": 1, "tid": tracks[track]}
        for name, track, start, seconds in run.spans
    ]
    return {"displayTimeUnit": "ms", "traceEvents": labels + spans}
