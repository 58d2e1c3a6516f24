"""What a step of reinforcement learning has to do, and the training job that its answers make.

Frameworks hand answers to a trainer packed (several to a sequence), one to a row with padding removed, or padded.
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
from dragonscale.training.plan.tuning import FULL, Tuning

FITTING_STEPS = 100
"""Steps whose fullest microbatch has to fit."""
MAX_PACKED = 512
"""Most answers that are packed one by one; more pack as well as these."""


@dataclass(frozen=True)
class RlWork:
    """What a step has to do.

    `prompts` of `prompt` tokens on average, with `samples` answers to each. The trainer reads old log-probabilities and
    a reference's, and updates `updates` times. Rewards take `reward_s` after the last answer and `reward_passes`
    forward passes of the policy's size; a `critic` adds values and updates of its own. Between the `turns` of an answer
    a tool takes `tool_s` on average. Of `oversample` generated answers one is trained on (dynamic sampling drops
    prompts whose answers are all right or all wrong). Answers are packed, or each is `padded` to so many tokens.
    `tuning` says what of the policy is trained; without its adapters it is its own reference.
    """

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
    tuning: Tuning = FULL
    host_memory: float = 0.0
    """Bytes of memory of a host; 0: what hosts of its chips usually have."""

    @property
    def answers(self) -> int:
        """Answers that a step trains on."""
        return self.prompts * self.samples

    @property
    def tokens(self) -> float:
        """Tokens that a step trains on, prompts included."""
        return self.answers * self.each

    @property
    def each(self) -> float:
        """Mean tokens of a prompt with its answer."""
        return self.prompt + self.lengths.mean

    @property
    def generated(self) -> int:
        """Answers that are generated for a step."""
        return round(self.answers * self.oversample)

    @property
    def longest(self) -> int:
        """Tokens of the longest possible answer with its prompt."""
        return self.prompt + self.lengths.cap

    @property
    def longest_drawn(self) -> int:
        """Tokens of the longest of an update's answers, with its prompt."""
        return self.prompt + math.ceil(self.lengths.draw(math.ceil(self.answers / self.updates))[-1])

    @property
    def seen(self) -> float:
        """Mean tokens of the document that a packed token is in; long documents have more tokens."""
        drawn = self.prompt + self.lengths.draw(256)
        # a random token lies in a document with a chance in proportion to its length
        return float((drawn**2).sum() / drawn.sum())


def work_of(
    model: Transformer, name: str, prompts: int, samples: int, prompt: int, lengths: AnswerLengths, updates: int
) -> RlWork:
    """The work of an algorithm."""
    row = algorithm(name)
    sizes = (prompts, samples, prompt, lengths, name.strip().lower(), updates)
    return RlWork(model, *sizes, reference=row.reference, critic=row.critic)


def packed_job(work: RlWork, chips: Slice, trainer: str, ways: int) -> Job:
    """The training job of one update.

    Answers are packed into sequences no longer than the longest possible answer, as many on each of `ways` replicas as
    first-fit needs; or padded, one to a sequence.
    """
    answers = work.answers / work.updates
    if work.padded:
        job = make_job(work.model, chips, ways * math.ceil(answers / ways), work.padded, trainer, work.tuning)
        return with_numerics(job, "production")
    tokens = answers * work.each
    batch = ways * packed_count(work.lengths, work.prompt, math.ceil(answers / ways))
    length = math.ceil(tokens / batch / 64) * 64  # the sequences' mean, in whole tiles
    job = make_job(work.model, chips, batch, length, trainer, work.tuning)
    return with_numerics(replace(job, documents=min(round(work.seen), length)), "production")


def fullest_job(work: RlWork, job: Job) -> Job:
    """The job of a packed sequence that is full: as long as the longest possible answer with its prompt."""
    if work.padded:
        return job
    return replace(job, sequence=max(job.sequence, math.ceil(work.longest / 64) * 64))


def answers_jobs(work: RlWork, chips: Slice, trainer: str, plan: Plan) -> tuple[Job, Job]:
    """The training jobs of one update whose microbatches are so many answers each, without padding (verl without
    use_dynamic_bsz): the average one, and that of the fullest microbatch of a hundred steps."""
    each, answers = plan.microbatch, math.ceil(work.answers / work.updates / plan.replicas) * plan.replicas
    spread = float(work.lengths.draw(512).std())
    # Sums of k answers spread as √k; the fullest of M sums is √(2 ln M) standard deviations above the mean.
    out = math.sqrt(2 * math.log(max(FITTING_STEPS * work.answers / each, 2.0)) / each)
    sizes = (math.ceil(work.each), min(math.ceil(work.each + spread * out), work.longest))
    jobs = (make_job(work.model, chips, answers, size, trainer, work.tuning) for size in sizes)
    usual, fullest = (with_numerics(job, "production") for job in jobs)
    return usual, fullest


def handed(work: RlWork, row: Framework, trainer: str) -> RlWork:
    """The work as a framework hands it to a trainer: if that cannot pack the model's linear attention, every answer of
    an update is padded to the longest of them."""
    if work.padded or not pads_model(work.model, row, trainer):
        return work
    return replace(work, padded=work.longest_drawn)


def pads_model(model: Transformer, row: Framework, trainer: str) -> bool:
    """Whether a framework's trainer cannot pack the answers of a model."""
    ops = (op for section in model.program().sections for op in section.ops)
    return trainer in row.pads_linear and any(op.function == "delta" for op in ops)


@functools.lru_cache(256)
def packed_count(lengths: AnswerLengths, prompt: int, count: int) -> int:
    """Sequences that so many answers with their prompts fill (first-fit decreasing: the longest first, each into the
    first sequence with space).

    >>> packed_count(AnswerLengths(600, 600), 24, 10), packed_count(AnswerLengths(100, 1000), 0, 64)
    (10, 7)
    """
    sample = min(count, MAX_PACKED)
    free_tokens = numpy.full(sample, float(prompt + lengths.cap))  # of each sequence
    for length in prompt + lengths.draw(sample)[::-1]:
        free_tokens[numpy.argmax(free_tokens >= length)] -= length
    # sequences that got any answer, scaled up from the sample
    filled = int((free_tokens < prompt + lengths.cap).sum())
    return math.ceil(filled * count / sample)
