"""Drafts change nothing: not a token of greedy or n-gram decoding, and of a draft model's not the distribution."""

from typing import Any

import numpy
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from scipy.special import softmax

from dragonscale.runtime.serve import sampling
from dragonscale.runtime.serve.filters import STATE, TOKEN, SlotState
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.speculation import DraftModel, NgramIndex, single_batch
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch
from tests.runtime.serve.test_sampling import kept, surprise

VOCAB, DRAFTS, FIRST = 5, 2, 2
TARGET, DRAFT = (
    numpy.random.default_rng(seed).normal(size=(VOCAB, VOCAB)).astype(numpy.float32) * 1.5 for seed in (3, 4)
)
HOWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 4},
    {"top_p": 0.85, "min_p": 0.05},
    {"temperature": 0.0},
]
PROGRAMS: dict[tuple[int, int, bool], dict[Any, Any]] = {}
"""Compiled once for all tests."""


class Bigrams:
    """A language model whose next token depends on the last one."""

    def __init__(self, table: numpy.ndarray) -> None:
        self.table = table

    def run(self, batch: StepBatch, last: Any) -> Any:
        tokens = batch.tokens.copy()
        ranks = numpy.arange(len(tokens))[:, None]
        first = tokens[:, : batch.shape.decodes * batch.shape.queries : batch.shape.queries]
        numpy.copyto(first, numpy.asarray(last)[ranks, batch.slots[:, : batch.shape.decodes]], where=batch.from_last)
        return jax.device_put(self.table[tokens[ranks, batch.reads]])


def generate(
    how: list[dict[str, Any]],
    length: int,
    drafts: int = 0,
    model: bool = False,
    ngrams: bool = False,
    lie: bool = False,
) -> numpy.ndarray:
    """Tokens [rows, length] after the prompt `FIRST`, by decoding rows that may have fewer drafts than there is room
    for. With a `lie` drafts are said to be drawn from the distribution of other tokens."""
    rows, random = len(how), numpy.random.default_rng(5)
    sampler = Sampler(EngineLimits(pages=2, sequences=rows, draft=drafts), VOCAB, weighed=model)
    sampler.programs = PROGRAMS.setdefault((rows, drafts, model), {})
    drafter, target = DraftModel(Bigrams(DRAFT), sampler), Bigrams(TARGET)
    output: list[list[int]] = [[FIRST] for _ in how]
    for slot, each in enumerate(how):
        sampler.admit(0, slot, GenerateRequest(id="a", prompt=[FIRST], sampling=Sampling(seed=slot, **each)))
    sampler.last = jax.device_put(numpy.full((1, rows + 1), FIRST, numpy.int32), sampler.sharding)
    while min(map(len, output)) <= length:
        batch = empty_batch(StepShape(rows, drafts + 1), 1, 1, rows)
        batch.slots[:], batch.from_last[:] = numpy.arange(rows), True
        batch.lengths[:] = [len(row) + drafts for row in output]
        batch.positions[:] = (numpy.array([[len(row) - 1] for row in output]) + numpy.arange(drafts + 1)).reshape(1, -1)
        probs = drafter.propose(batch) if model else ()
        probs = tuple(numpy.roll(each, 1, 2) for each in probs) if lie else probs
        batch.drafted[:] = random.integers(0, drafts + 1, rows) if model else 0
        for row, known in enumerate(output if ngrams else []):
            guess = NgramIndex(known).propose(drafts)
            batch.tokens[0, row * (drafts + 1) + 1 :][: len(guess)] = guess
            batch.drafted[0, row] = len(guess)
        found = sampler.sample(target.run(batch, sampler.last), batch, probs=probs).fetch()
        for row, (tokens, count) in enumerate(zip(found.tokens[0].reshape(rows, -1), found.counts[0], strict=True)):
            output[row] += tokens[:count].tolist()
        assert numpy.asarray(sampler.last)[0, :rows].tolist() == [row[-1] for row in output]
    return numpy.array([row[1 : length + 1] for row in output])


def exact(how: dict[str, Any], length: int) -> numpy.ndarray:
    """The probability of every text of so many tokens."""
    t = how.get("temperature", 1.0) or 1e-3
    rows = []
    for x in TARGET.astype(float) / t:
        rows.append(
            softmax(
                numpy.where(kept(x, how.get("top_k", 0), how.get("top_p", 1.0), how.get("min_p", 0.0)), x, -numpy.inf)
            )
        )
    table, p = numpy.array(rows), numpy.array(rows)[FIRST]
    for _ in range(length - 1):
        p = (p.reshape(-1, VOCAB)[:, :, None] * table).reshape(-1)
    return p


def surprises(each: int = 400, length: int = 3, lie: bool = False) -> list[float]:
    tokens = generate([how for how in HOWS for _ in range(each)], length, DRAFTS, model=True, lie=lie)
    texts = (tokens * VOCAB ** numpy.arange(length)[::-1]).sum(1).reshape(len(HOWS), each)
    return [surprise(row, exact(how, length)) for how, row in zip(HOWS, texts, strict=True)]


def test_texts_of_a_draft_model_have_the_targets_distribution() -> None:
    """Greedy rows, and rows with filters, and with fewer drafts, beside each other."""
    assert min(surprises()) > 0.01


@pytest.mark.slow
def test_a_wrong_probability_is_seen() -> None:
    assert max(surprises(lie=True)[:3]) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["every draft stays", "rejected drafts are drawn anew from p"])
def test_a_wrong_acceptance_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    right = sampling._weighed

    def weighed(x: Any, state: Any, positions: Any, noise: Any, drawn: Any, drafts: Any) -> Any:
        chosen, stays = right(x, state, positions, noise, drawn, drafts)
        if wrong == "every draft stays":
            return chosen, stays | True
        return right(x, state, positions, noise, drawn * 0, drafts)[0], stays

    monkeypatch.setattr(sampling, "_weighed", weighed)
    monkeypatch.setattr("tests.runtime.serve.test_speculation.PROGRAMS", {})
    assert min(surprises()[:3]) < 1e-4


@pytest.mark.slow
def test_drafts_by_n_grams_change_no_token() -> None:
    hows = [*({**how, "frequency": 0.3} for how in HOWS), *HOWS]
    assert (generate(hows, 24, DRAFTS, ngrams=True) == generate(hows, 24)).all()


@pytest.mark.slow
def test_drafts_of_a_model_change_no_token_of_greedy_rows() -> None:
    greedy = [{"temperature": 0.0}] * 4
    assert (generate(greedy, 12, DRAFTS, model=True) == generate(greedy, 12)).all()


def test_n_grams_propose_what_followed_the_longest_of_them() -> None:
    assert NgramIndex([1, 2, 3, 4, 9, 2, 3, 7, 1, 2, 3]).propose(3) == [4, 9, 2]
    assert NgramIndex([5, 6, 7, 6]).propose(2) == [7, 6]
    assert NgramIndex([1, 2, 3]).propose(4) == []
    assert NgramIndex([8, 4, 4]).propose(3) == [4, 4, 4], "a repetition goes on"
    long = NgramIndex(numpy.array([1, 2, 3, 4, *[9] * 9000, 5, 6, 7, 8, 5, 6]))
    assert long.propose(2) == [7, 8]
    long.extend([2, 3])
    assert long.propose(2) == [], "of a long prompt the end is looked through"
    index = NgramIndex([])
    index.extend([1, 2, 1])
    assert index.propose(3) == [2, 1, 2]


def test_a_draft_models_step_is_the_targets_with_one_token_of_each_row() -> None:
    batch = empty_batch(StepShape(2, 3, 1, 4), 1, 5, 2)
    batch.slots[:], batch.lengths[:] = [[1, 2, 0]], [[9, 0, 4]]
    batch.positions[0, :3], batch.writes[0, :3], batch.tables[0, 0] = [6, 7, 8], [22, 23, 40], [1, 2, 3, 4, 5]
    batch.from_last[0, 0] = True
    later = single_batch(batch, 2)
    assert (later.shape, later.positions.tolist(), later.writes.tolist()) == (StepShape(2), [[8, 0]], [[40, 0]])
    assert (later.lengths.tolist(), later.slots.tolist(), later.reads.tolist()) == ([[9, 0]], [[1, 2]], [[0, 1]])
    assert (later.tables[0, 0] == [1, 2, 3, 4, 5]).all()
    assert single_batch(batch, 0).from_last.tolist() == [[True, False]]


def test_a_rejected_draft_says_nothing_of_the_token_in_its_place() -> None:
    """p is 0.4, 0.4, 0.2 and every draft is the third token: one in five stays, and the others are replaced by the
    first two tokens equally often. With one random key for both draws, those rejected would favour the first: 0.6 to
    0.4."""
    rows, p = 4000, numpy.array([0.4, 0.4, 0.2], numpy.float32)
    slots = numpy.zeros(rows * 2, STATE)
    slots["settings"] = [1, 0, 1, 0, 0, 0, 1]
    slots["seed"][:, 0] = numpy.arange(rows * 2)
    state = SlotState.unpacked(jnp.asarray(slots.view(numpy.uint32).reshape(rows * 2, -1)))
    positions = jnp.ones(rows * 2, jnp.int32)
    logits = jnp.tile(jnp.log(p), (rows * 2, 1))
    drawn = jnp.tile(jnp.asarray([0.0, 0.0, 1.0], jnp.float32), (rows, 1, 1))  # (rows, drafts, vocabulary)
    drafts = jnp.full((rows, 1), 2)
    noise = state.noise(positions, TOKEN, 3)
    chosen, stays = sampling._weighed(logits, state, positions, noise, drawn, drafts)
    instead = numpy.asarray(chosen).reshape(rows, 2)[:, 0][~numpy.asarray(stays)[:, 0]]
    assert numpy.mean(numpy.asarray(stays)) == pytest.approx(0.2, abs=0.03)
    assert numpy.mean(instead == 0) == pytest.approx(0.5, abs=0.04)
    assert not (instead == 2).any()
