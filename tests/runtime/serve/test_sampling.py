"""The sampler against what NumPy says, and what it draws against the exact distribution."""

from typing import Any

import numpy
import pytest

pytest.importorskip("jax")

import jax
from jax.sharding import Mesh
from scipy.special import log_softmax, softmax
from scipy.stats import chi2

from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.runtime.serve.filters import STATE, SlotState, tempered
from dragonscale.runtime.serve.requests import GenerateRequest, Sampling
from dragonscale.runtime.serve.sampling import Sampler, check_sampling
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch

VOCAB = 30
X = (numpy.random.default_rng(1).normal(size=VOCAB) * 2).astype(numpy.float32)
HOWS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"top_k": 5, "top_p": 0.8},
    {"min_p": 0.1},
    {"repetition": 4.0},
    {"bias": {3: 2.5, 4: -100.0}},
    {"presence": 1.5, "frequency": 1.0},
    {"temperature": 0.0},
    {"temperature": 1e-39, "top_p": 0.9},
]


def asked(*, least: int = 0, ends: list[int] | None = None, **how: Any) -> GenerateRequest:
    return GenerateRequest(id="a", prompt=[1, 2, 3], sampling=Sampling(**how), least=least, ends=ends or [])


def decoding(slots: list[list[int]], position: int, sequences: int, prompts: int = 0) -> StepBatch:
    """A step whose rows all read a token at one position; the last `prompts` of them are ends of prompts."""
    rows = len(slots[0])
    batch = empty_batch(StepShape(rows - prompts, 1, prompts, prompts), len(slots), 1, sequences)
    batch.slots[:] = slots
    batch.positions[:] = position
    batch.reads[:] = numpy.arange(rows)
    return batch


def alike(size: tuple[int, int, int]) -> Any:
    """The same logits for all rows."""
    return jax.device_put(numpy.broadcast_to(X, size))


def kept(x: numpy.ndarray, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> numpy.ndarray:
    """Which tokens stay, by sorting."""
    stays = softmax(x) >= min_p * softmax(x).max()
    if top_k:
        stays &= x >= numpy.sort(numpy.where(stays, x, -numpy.inf))[-top_k]
    p = softmax(numpy.where(stays, x, -numpy.inf))
    order = numpy.argsort(-p, kind="stable")
    stays[order[numpy.cumsum(p[order]) - p[order] >= top_p]] = False
    return stays


def exact(how: dict[str, Any], output: tuple[int, ...] = ()) -> numpy.ndarray:
    """The distribution that a request after the prompt 1, 2, 3 and some output has, in doubles."""
    x = X.astype(float)
    seen = [*{1, 2, 3, *output}]
    x[seen] = numpy.where(x[seen] > 0, x[seen] / how.get("repetition", 1), x[seen] * how.get("repetition", 1))
    for token in output:
        x[token] -= how.get("frequency", 0)
    for token in set(output):
        x[token] -= how.get("presence", 0)
    for token, value in how.get("bias", {}).items():
        x[token] += value
    if how.get("temperature", 1) < 1e-5:
        return (numpy.arange(VOCAB) == x.argmax()).astype(float)
    x /= how.get("temperature", 1)
    return softmax(
        numpy.where(kept(x, how.get("top_k", 0), how.get("top_p", 1.0), how.get("min_p", 0.0)), x, -numpy.inf)
    )


def surprise(outcomes: numpy.ndarray, p: numpy.ndarray) -> float:
    """The probability of counts as far from `p` as these, or farther: chi-square, seldom outcomes together."""
    counts, wanted = numpy.bincount(outcomes, minlength=len(p)), p * len(outcomes)
    if counts[p == 0].any():
        return 0.0
    often = wanted >= 5
    counts, wanted = (numpy.array([*a[often], a[~often].sum()]) for a in (counts, wanted))
    there = wanted > 0
    return float(chi2.sf(((counts - wanted)[there] ** 2 / wanted[there]).sum(), max(there.sum() - 1, 1)))


def test_every_filter_keeps_what_sorting_keeps() -> None:
    cases = [
        (t, k, p, m)
        for k in (0, 1, 7, 200)
        for p in (1.0, 0.9, 0.3, 1e-6)
        for m in (0.0, 0.05)
        for t in (0.3, 1.0, 3.0)
    ]
    x = (numpy.random.default_rng(0).normal(size=(len(cases), 200)) * 3).astype(numpy.float32)
    x[5, 7:] = -numpy.inf
    state = numpy.zeros(len(cases), STATE)
    state["settings"] = [[*case, 0, 0, 1] for case in cases]
    words = state[:, None].view(numpy.uint32)
    filtering = jax.jit(lambda x, words: tempered(x, SlotState.unpacked(words), True))
    for row, logits, (t, k, p, m) in zip(numpy.asarray(filtering(x, words)), x, cases, strict=True):
        scaled = logits / numpy.float32(t)
        expected = kept(scaled.astype(float), k, p, m) & numpy.isfinite(scaled)
        assert (numpy.isfinite(row) == expected).all(), (t, k, p, m)
        numpy.testing.assert_allclose(row[expected], scaled[expected], rtol=1e-6)
    equal = numpy.asarray(filtering(numpy.zeros_like(x), words))
    assert (equal == 0).all(), "equals stay together"


def test_tokens_come_from_the_exact_distribution_whatever_their_neighbours_ask_for() -> None:
    each = 400
    rows = each * len(HOWS)
    sampler = Sampler(EngineLimits(pages=2, sequences=rows), VOCAB)
    outputs = numpy.resize(numpy.argsort(-X)[:2], rows)
    for slot in range(rows):
        sampler.admit(0, slot, asked(seed=slot, **HOWS[slot // each]), [int(outputs[slot])])
    found = sampler.sample(alike((1, rows, VOCAB)), decoding([list(range(rows))], 3, rows))
    tokens = numpy.asarray(found.tokens)[0].reshape(len(HOWS), each)
    for how, row in zip(HOWS, tokens, strict=True):
        p = numpy.mean([exact(how, (int(output),)) for output in outputs[:2]], axis=0)
        assert surprise(row, p) > 0.01, how
    wrong = [surprise(row, exact({})) for row in tokens[1:]]
    assert max(wrong) < 0.01, "the test sees each setting"


def test_a_seed_gives_the_same_tokens_in_any_batch_slot_and_rank(eight: list[Any]) -> None:
    """One rank and a prompt's row, or two ranks on two chips; with neighbours that are filtered, or alone."""
    how: dict[str, Any] = {"seed": 11, "temperature": 1.5}
    others: dict[str, Any] = {"seed": 3, "top_k": 7}
    alone = Sampler(EngineLimits(pages=2, sequences=3), VOCAB)
    alone.admit(0, 2, asked(**how))
    mesh = Mesh(numpy.array(eight[:2]), ("data",))
    many = Sampler(EngineLimits(pages=2, sequences=3, ranks=2), VOCAB, mesh)
    for rank in range(2):
        for slot in range(3):
            many.admit(rank, slot, asked(**(how if (rank, slot) == (1, 0) else others)))
    drawn = []
    for position in range(2, 10):
        one = alone.sample(alike((1, 1, VOCAB)), decoding([[2]], position, 3, prompts=1))
        other = many.sample(alike((2, 3, VOCAB)), decoding([[0, 1, 2], [2, 0, 3]], position, 3))
        same = {
            int(numpy.asarray(a)[i])
            for a, i in ((one.tokens, (0, 0)), (other.tokens, (1, 1)), (alone.last, (0, 2)), (many.last, (1, 0)))
        }
        assert len(same) == 1
        drawn += same
    assert len(set(drawn)) > 3


@pytest.fixture(scope="module")
def sampler() -> Sampler:
    """Of two slots; both tests that use it ask for the same program."""
    return Sampler(EngineLimits(pages=2, sequences=2), VOCAB)


def test_logprobs_are_of_the_models_own_distribution(sampler: Sampler) -> None:
    """Not of what penalties and the temperature make of it."""
    sampler.admit(0, 0, asked(temperature=0.2, seed=1, frequency=1.0, logprobs=5))
    sampler.admit(0, 1, asked(temperature=0.0))
    found = jax.device_get(vars(sampler.sample(alike((1, 2, VOCAB)), decoding([[0, 1]], 2, 2))))
    expected = log_softmax(X.astype(float))
    assert found["tokens"][0, 1] == X.argmax()
    numpy.testing.assert_allclose(found["logprobs"][0], expected[found["tokens"][0]], rtol=1e-5)
    order = numpy.argsort(-expected)[:20]
    assert (found["top"][0] == order).all()
    numpy.testing.assert_allclose(found["top_logprobs"][0, 1], expected[order], rtol=1e-5)


def test_penalties_count_what_is_sampled_and_ends_wait_for_the_fewest_tokens(sampler: Sampler) -> None:
    """A frequency penalty that is greater than the logits' range goes once round the vocabulary; the end is barred for
    3 tokens."""
    best = int(X.argmax())
    sampler.admit(0, 0, asked(temperature=0, frequency=100.0, logprobs=0))
    sampler.admit(0, 1, asked(least=3, ends=[best, 4], temperature=0))
    tokens = [
        numpy.asarray(sampler.sample(alike((1, 2, VOCAB)), decoding([[0, 1]], position, 2)).tokens)[0]
        for position in range(2, 2 + VOCAB)
    ]
    assert [row[0] for row in tokens] == numpy.argsort(-X).tolist()
    second = next(token for token in numpy.argsort(-X) if token not in (best, 4))
    assert [row[1] for row in tokens] == [second] * 3 + [best] * (VOCAB - 3)


@pytest.mark.slow
def test_nothing_is_compiled_under_way() -> None:
    sampler, told = Sampler(EngineLimits(pages=2, sequences=3), VOCAB), []
    listener = Listener()
    listener.step = lambda done, total: told.append((done, total))
    sampler.compile([StepShape(3), StepShape(3, 1, 0, 64)], listener)
    assert told[-1] == (9, 9) == (len(sampler.programs), len(told))
    for how in HOWS:
        sampler.admit(0, 1, asked(**how))
        sampler.admit(0, 2, asked(**{**how, "logprobs": 1}))
        for slots in ([0, 1, 3], [0, 1, 2]):
            sampler.sample(alike((1, 3, VOCAB)), decoding([slots], 2, 3))
    sampler.score(alike((1, 3, VOCAB)), numpy.zeros((1, 3), numpy.int32))
    assert len(sampler.programs) == 9


def test_what_there_is_no_room_for_is_refused() -> None:
    with pytest.raises(InputError, match=r"token 30; the vocabulary's tokens are 0 to 29"):
        check_sampling(asked(bias={30: 1.0}), VOCAB)
    with pytest.raises(InputError, match="321 tokens and 0 end tokens"):
        check_sampling(asked(bias=dict.fromkeys(range(321), 1.0)), 1000)
