"""A device that computes no model: the next token is a hash of all tokens of the sequence with their positions, read
through the page table, and of the request that its slot was given to. A wrong page, position, length or slot gives
another token."""

from typing import Any

import numpy

from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.serve.sampling import Sampled
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch

VOCAB = 50_021
WEIGHTS = numpy.random.default_rng(0).integers(1, 1 << 30, 1 << 16)


def salt(request: GenerateRequest) -> int:
    return sum(request.id.encode()) * 7919 + len(request.prompt)


def alone(request: GenerateRequest, kinds: int = 1000) -> list[int]:
    """What the device makes of a request by itself; there are so many `kinds` of token."""
    tokens = numpy.array(request.prompt, numpy.int64)
    total = int((((tokens + 1) * WEIGHTS[: len(tokens)]) % VOCAB).sum())
    output: list[int] = []
    while len(output) < request.length:
        token = (total + salt(request)) % VOCAB % kinds
        output.append(token)
        if token in request.ends and len(output) > request.least:
            break
        total += (token + 1) * int(WEIGHTS[len(request.prompt) + len(output) - 1]) % VOCAB
    return output


class FakeRunner:
    def __init__(self, limits: EngineLimits) -> None:
        self.limits, self.fail_at, self.steps = limits, set(), 0
        self.reset()

    def reset(self) -> None:
        limits = self.limits
        self.cache = numpy.full((limits.ranks, limits.pages * limits.page), -(10**6), numpy.int64)
        self.hidden = None

    def run(self, batch: StepBatch, last: numpy.ndarray) -> numpy.ndarray:
        self.steps += 1
        if self.steps in self.fail_at:
            raise RuntimeError("device lost")
        shape, page = batch.shape, self.limits.page
        tokens, d, q = batch.tokens.copy(), shape.decodes, shape.queries
        logits = numpy.zeros((self.limits.ranks, shape.read), numpy.int64)
        for rank in range(self.limits.ranks):
            at = numpy.flatnonzero(batch.from_last[rank])
            tokens[rank, at * q] = last[rank, batch.slots[rank, at]]
            values = ((tokens[rank].astype(numpy.int64) + 1) * WEIGHTS[batch.positions[rank]]) % VOCAB
            self.cache[rank, batch.writes[rank]] = values
            for row in range(shape.rows):
                for query in range(q if row < d else 1):
                    length = batch.lengths[rank, row] - (q - 1 - query if row < d else 0)
                    if length <= 0:
                        continue
                    places = numpy.arange(length)
                    where = batch.tables[rank, row, places // page] * page + places % page
                    assert (where >= page).all(), "a sequence reads the page of padding"
                    read = row * q + query if row < d else d * q + row - d
                    assert batch.positions[rank, batch.reads[rank, read]] == length - 1, (
                        "the read token is not the last"
                    )
                    logits[rank, read] = self.cache[rank, where].sum()
        self.hidden = logits[..., None].astype(float)
        return logits

    def read_pages(self, rank: int, pages: list[int]) -> list[numpy.ndarray]:
        return [self.cache[rank].reshape(-1, self.limits.page)[pages]]

    def write_pages(self, rank: int, pages: list[int], arrays: list[numpy.ndarray]) -> None:
        self.cache[rank].reshape(-1, self.limits.page)[pages] = arrays[0]


class FakeSampler:
    vocab = VOCAB

    def __init__(self, limits: EngineLimits, kinds: int = 1000) -> None:
        self.limits, self.kinds = limits, kinds
        self.reset()

    def reset(self) -> None:
        self.last = numpy.zeros((self.limits.ranks, self.limits.sequences + 1), numpy.int64)
        self.salts = numpy.zeros_like(self.last)

    def admit(self, rank: int, slot: int, request: GenerateRequest, output: list[int]) -> None:
        assert output == alone(request, self.kinds)[: len(output)]
        self.salts[rank, slot] = salt(request)
        self.last[rank, slot] = -1

    def sample(self, logits: numpy.ndarray, batch: StepBatch, *_: Any) -> Sampled:
        d, q, ranks = batch.shape.decodes, batch.shape.queries, numpy.arange(len(logits))[:, None]
        rows = numpy.array([*numpy.repeat(numpy.arange(d), q), *range(d, batch.shape.rows)], int)
        tokens = (logits + self.salts[ranks, batch.slots[:, rows]]) % VOCAB % self.kinds
        chosen = tokens[:, : d * q].reshape(len(logits), d, q)
        drafts = batch.tokens[:, : d * q].reshape(len(logits), d, q)[:, :, 1:]
        hits = (chosen[:, :, :-1] == drafts) & (numpy.arange(q - 1) < batch.drafted[:, :, None])
        counts = 1 + numpy.cumprod(hits, 2).sum(2)
        self.last[ranks, batch.slots[:, :d]] = numpy.take_along_axis(chosen, counts[:, :, None] - 1, 2)[:, :, 0]
        self.last[ranks, batch.slots[:, d:]] = tokens[:, d * q :]
        return Sampled(tokens, counts)
