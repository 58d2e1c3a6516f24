"""The sampler against what NumPy says, and its distribution against the exact one."""

from typing import Any

import numpy
import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
from scipy.special import softmax
from scipy.stats import chi2

from dragonscale.runtime.serve.filters import filtered, tempered
from dragonscale.runtime.serve.requests import Sampling, ServeRequest
from dragonscale.runtime.serve.sampling import Sampler
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, empty_batch

VOCAB = 50


def asked(prompt: list[int] | None = None, least: int = 0, ends: list[int] | None = None, **how: Any) -> ServeRequest:
    return ServeRequest(id="a", prompt=prompt or [1, 2, 3], sampling=Sampling(**how), least=least, ends=ends or [])


def decoding(slots: list[list[int]], position: int, sequences: int, prompts: int = 0) -> StepBatch:
    """A step whose rows all decode their token at a position; the last `prompts` of them are ends of prompts."""
    rows = len(slots[0])
    batch = empty_batch(StepShape(rows - prompts, 1, prompts, prompts), len(slots), 1, sequences)
    batch.slots[:] = slots
    batch.positions[:] = position
    batch.reads[:] = numpy.arange(rows)
    return batch


def drawn(logits: numpy.ndarray, rows: int, position: int = 2, **how: Any) -> numpy.ndarray:
    """Tokens of many rows with the same logits, each with its own seed."""
    sampler = Sampler(EngineLimits(pages=2, sequences=rows), logits.shape[-1])
    for slot in range(rows):
        sampler.admit(0, slot, asked(seed=slot, **how))
    found = sampler.sample(
        jnp.broadcast_to(logits, (1, rows, len(logits))), decoding([list(range(rows))], position, rows)
    )
    return numpy.asarray(found.tokens)[0]


def kept(x: numpy.ndarray, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> numpy.ndarray:
    """Which tokens stay, by sorting."""
    stays = softmax(x) >= min_p * softmax(x).max()
    if top_k:
        stays &= x >= numpy.sort(numpy.where(stays, x, -numpy.inf))[-top_k]
    p = softmax(numpy.where(stays, x, -numpy.inf))
    order = numpy.argsort(-p, kind="stable")
    before = numpy.cumsum(p[order]) - p[order]
    stays[order[before >= top_p]] = False
    return stays


def unlikely(tokens: numpy.ndarray, p: numpy.ndarray) -> float:
    """The probability of counts as far from `p` as these, or farther (chi-square; tokens that are seldom go together)."""
    counts, wanted = numpy.bincount(tokens, minlength=len(p)), p * len(tokens)
    assert not counts[p == 0].any(), "a token that has no probability"
    often = wanted >= 5
    counts, wanted = ([*a[often], a[~often].sum()] for a in (counts, wanted))
    return float(chi2.sf(sum((c - w) ** 2 / w for c, w in zip(counts, wanted, strict=True) if w > 0), len(counts) - 1))


def test_every_filter_keeps_what_sorting_keeps() -> None:
    random = numpy.random.default_rng(0)

    cases = [
        (k, p, m, t)
        for k in (0, 1, 7, 200)
        for p in (1.0, 0.9, 0.3, 1e-6)
        for m in (0.0, 0.05)
        for t in (0.3, 1.0, 3.0)
    ]
    x = (random.normal(size=(len(cases), 200)) * 3).astype(numpy.float32)
    x[3] = 0  # all equal
    x[5, 7:] = -numpy.inf
    settings = numpy.array([[t, k, p, m, 0, 0, 1] for k, p, m, t in cases], numpy.float32)
    found = numpy.asarray(jax.jit(lambda x, s: filtered(tempered(x, s), s))(x, settings))
    for row, scaled, (k, p, m, t) in zip(found, x, cases, strict=True):
        scaled = (scaled / numpy.float32(t)).astype(numpy.float32)
        if scaled.any():
            expected = kept(scaled.astype(float), k, p, m)
            expected[numpy.isneginf(scaled)] = False
        else:
            expected = numpy.ones(200, bool)  # equals stay together
        assert (numpy.isfinite(row) == expected).all(), (k, p, m, t)
        numpy.testing.assert_allclose(row[expected], scaled[expected], rtol=1e-6)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"temperature": 0.5},
        {"top_k": 5, "top_p": 0.8},
        {"min_p": 0.1},
        {"presence": 1.0, "frequency": 0.5, "repetition": 1.3},
        {"bias": {3: 2.5, 4: -100.0}},
    ],
)
def test_tokens_come_from_the_exact_distribution(how: dict[str, Any]) -> None:
    x = numpy.random.default_rng(1).normal(size=VOCAB).astype(numpy.float32) * 2
    expected = x.astype(float)
    if "repetition" in how:  # the prompt is 1, 2, 3
        expected[1:4] = numpy.where(expected[1:4] > 0, expected[1:4] / 1.3, expected[1:4] * 1.3)
    for token, value in how.get("bias", {}).items():
        expected[token] += value
    expected /= how.get("temperature", 1.0)
    stays = kept(expected, how.get("top_k", 0), how.get("top_p", 1.0), how.get("min_p", 0.0))
    tokens = drawn(x, 4000, **how)
    assert unlikely(tokens, softmax(numpy.where(stays, expected, -numpy.inf))) > 1e-3
    assert unlikely(tokens, softmax(x * 0.9)) < 1e-3
