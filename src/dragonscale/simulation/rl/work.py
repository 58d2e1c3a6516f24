"""What a step of reinforcement learning has to do, and the training job that its answers make.

Frameworks hand answers to a trainer packed, several to a sequence, one to a row with padding removed, or padded.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy

from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Slice
from dragonscale.simulation.rl.frameworks import Framework, algorithm
from dragonscale.simulation.rl.lengths import AnswerLengths
from dragonscale.training.cost.evaluation import Job, make_job, with_numerics
from dragonscale.training.plan.plan import Plan

HUNDRED = 100
"""Steps whose fullest microbatch has to fit."""
MOST_PACKED = 512
"""Answers by which it is found how well many of them pack."""


@dataclass(frozen=True)
class RlWork:
    """What a step has to do: `prompts` of `prompt` tokens on average, `samples` answers to each; the trainer reads
    old log-probabilities and a reference's, and updates `updates` times. Rewards take `reward_s` after the last answer
    and `reward_passes` forward passes of the policy's size; with a `critic` there are values and updates of its own.
    Between the `turns` of an answer a tool takes `tool_s` on average. Of `oversample` answers generated one is trained
    on (dynamic sampling drops prompts whose answers are all right or all wrong). Answers are packed, or each is
    `padded` to so many tokens."""

    model: Transformer
    prompts: int
    samples: int
    prompt: int
    lengths: AnswerLengths
    algorithm: str = "grpo"
    updates: int = 1
    reference: bool = True
    old: bool = True
    critic: bool = False
    reward_s: float = 0.0
    reward_passes: float = 0.0
    padded: int = 0
    oversample: float = 1.0
    turns: int = 1
    tool_s: float = 0.0

    @property
    def answers(self) -> int:
        return self.prompts * self.samples

    @property
    def tokens(self) -> float:
        """Tokens that a step trains on, prompts included."""
        return self.answers * self.each

    @property
    def each(self) -> float:
        """Tokens of a prompt and its answer, on average."""
        return self.prompt + self.lengths.mean

    @property
    def generated(self) -> int:
        """Answers that are generated for a step."""
        return round(self.answers * self.oversample)

    @property
    def longest(self) -> int:
        return self.prompt + self.lengths.cap

    @property
    def longest_drawn(self) -> int:
        """Tokens of the longest of an update's answers, with its prompt."""
        return self.prompt + math.ceil(self.lengths.draw(math.ceil(self.answers / self.updates))[-1])

    @property
    def seen(self) -> float:
        """Tokens of the document that a packed token is in, on average: long ones have more."""
        drawn = self.prompt + self.lengths.draw(256)
        return float((drawn**2).sum() / drawn.sum())


def work_of(
    model: Transformer, name: str, prompts: int, samples: int, prompt: int, lengths: AnswerLengths, updates: int
) -> RlWork:
    """The work of an algorithm."""
    row = algorithm(name)
    sizes = (prompts, samples, prompt, lengths, name.strip().lower(), updates)
    return RlWork(model, *sizes, reference=row.reference, critic=row.critic)


def packed_job(work: RlWork, piece: Slice, trainer: str, ways: int) -> Job:
    """The training job of one update: answers packed into sequences no longer than the longest answer may be, as many
    on each of `ways` replicas as first-fit needs; or padded, one to a sequence."""
    answers = work.answers / work.updates
    if work.padded:
        job = make_job(work.model, piece, ways * math.ceil(answers / ways), work.padded, trainer)
        return with_numerics(job, "production")
    tokens = answers * work.each
    batch = ways * packed_count(work.lengths, work.prompt, math.ceil(answers / ways))
    length = math.ceil(tokens / batch / 64) * 64
    job = make_job(work.model, piece, batch, length, trainer)
    return with_numerics(replace(job, documents=min(round(work.seen), length)), "production")


def answers_jobs(work: RlWork, piece: Slice, trainer: str, plan: Plan) -> tuple[Job, Job]:
    """The training job of one update whose microbatches are so many answers each, padding removed (verl without
    use_dynamic_bsz): on average, and of the fullest of a hundred steps' microbatches. Sums of k answers spread as the
    square root of k; the fullest of M is sqrt(2 ln M) standard deviations out, and never beyond k of the longest."""
    each, answers = plan.microbatch, math.ceil(work.answers / work.updates / plan.replicas) * plan.replicas
    spread = float(work.lengths.draw(512).std())
    out = math.sqrt(2 * math.log(max(HUNDRED * work.answers / each, 2.0)) / each)
    sizes = (math.ceil(work.each), min(math.ceil(work.each + spread * out), work.longest))
    jobs = (make_job(work.model, piece, answers, size, trainer) for size in sizes)
    usual, fullest = (with_numerics(job, "production") for job in jobs)
    return usual, fullest


def handed(work: RlWork, row: Framework, trainer: str) -> RlWork:
    """The work as a framework hands it to a trainer: where that cannot pack the model's linear attention, every answer
    of an update is padded to the longest of them."""
    pads = not work.padded and pads_model(work.model, row, trainer)
    return replace(work, padded=work.longest_drawn) if pads else work


def pads_model(model: Transformer, row: Framework, trainer: str) -> bool:
    """Whether a framework's trainer cannot pack the answers of a model."""
    ops = (op for section in model.program().sections for op in section.ops)
    return trainer in row.pads_linear and any(op.function == "delta" for op in ops)


@functools.lru_cache(256)
def packed_count(lengths: AnswerLengths, prompt: int, count: int) -> int:
    """Sequences that so many answers with their prompts fill, each the longest first into the first with room
    (first-fit decreasing; of many answers, by 512 of them).

    >>> packed_count(AnswerLengths(600, 600), 24, 10), packed_count(AnswerLengths(100, 1000), 0, 64)
    (10, 7)
    """
    some = min(count, MOST_PACKED)
    room = numpy.full(some, float(prompt + lengths.cap))
    for one in prompt + lengths.draw(some)[::-1]:
        room[numpy.argmax(room >= one)] -= one
    filled = int((room < prompt + lengths.cap).sum())
    return math.ceil(filled * count / some)
