"""Tokens from logits: one program a step, compiled ahead, with every sequence's settings in its slot on the device.

What a step needs is chosen on the host from what its rows ask for, and nothing more is computed: `GREEDY` (the largest
logit), `PLAIN` (temperature alone), `FILTERED` (min-p, top-k, top-p), `SHAPED` (penalties, bias, fewest tokens and
grammars before those). Each exists with and without log probabilities. These are of the model's own distribution,
before anything is done to it, as OpenAI and vLLM tell them.

The noise that chooses a token comes from its request's seed and its position in the sequence: the same seed gives the
same tokens in any batch, slot or rank, and after a preemption. Drafts of n-grams, and of a greedy row, are accepted
where they are the token that is chosen anyway, so they change nothing at all. Drafts of a model are accepted by
rejection sampling (Leviathan et al., 2023; Chen et al., 2023), which leaves the distribution as it is; there the tokens
of a seed depend on what was drafted.

Counts for penalties are 4 bytes for each slot and token of the vocabulary (33 MB for 64 slots of 128k), so they are
there from the start.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.runtime.serve import filters
from dragonscale.runtime.serve.filters import EDITS, STATE, SlotState
from dragonscale.runtime.serve.requests import GenerateRequest
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape

GREEDY, PLAIN, FILTERED, SHAPED = range(4)
TOLD = 20
"""Likeliest tokens that are told: OpenAI's limit."""
FOREVER = 2**31 - 1
COLD = 1e-5
"""A temperature below this is greedy: logits divided by it would overflow."""


@dataclass(frozen=True)
class Sampled:
    """What a step chose, on the device: tokens [R, D·Q+P] in the order of the batch's `reads`, of which `counts` [R, D]
    are to be kept of each decoding row (at least one). With log probabilities: of the tokens, and of the likeliest [R,
    D·Q+P, 20]."""

    tokens: Any
    counts: Any
    logprobs: Any = None
    top: Any = None
    top_logprobs: Any = None

    def fetch(self) -> "Sampled":
        """The same in numpy; waits for the device."""
        return Sampled(*jax.device_get(list(vars(self).values())))


class SamplingProgram(NamedTuple):
    """Which program: rows as in the step's shape, what is computed, what is told, whether drafts come with
    probabilities."""

    decodes: int
    queries: int
    prompts: int
    level: int
    told: bool
    weighed: bool


def check_sampling(request: GenerateRequest, vocab: int) -> None:
    """Refuse what the sampler has no room for."""
    bias, ends = request.sampling.bias, request.ends
    if wrong := [token for token in bias if not 0 <= token < vocab]:
        raise InputError(f"The bias is for token {wrong[0]}; the vocabulary's tokens are 0 to {vocab - 1}.")
    if len(bias) + len(ends) > EDITS:
        raise InputError(f"A bias for {len(bias)} tokens and {len(ends)} end tokens are more than {EDITS} together.")


def _choose(
    key: SamplingProgram, held: Any, last: Any, logits: Any, words: Any, counts: Any, bits: Any, probs: Any
) -> Any:
    """One rank's step: of logits [read, v] the sampled, the new `last` [slots+1], the new counts [slots+1, v] (where
    they are used)."""
    d, q, p = key[:3]
    slots, positions, drafted, drafts = jnp.split(words, numpy.cumsum([d + p, d * q + p, d]))
    row = numpy.concatenate([numpy.repeat(numpy.arange(d), q), d + numpy.arange(p)])
    at, drafts, offered = slots[row], drafts.reshape(d, q - 1), jnp.arange(q - 1) < drafted[:, None]
    state, x, noise = SlotState.unpacked(held[at]), logits, 0
    if key.level == SHAPED:
        first, query = numpy.triu_indices(q, 1)  # for each query the drafts before it count as generated
        places = jnp.arange(d)[:, None] * q + query, drafts[:, first]
        x = filters.shaped(x, state, positions, counts[at].at[places].add(2 * offered[:, first]), bits[row])
    if key.level > GREEDY:
        x = filters.tempered(x, state, key.level > PLAIN)
        noise = state.noise(positions, filters.TOKEN, x.shape[1])
    if key.weighed:
        chosen, hits = _weighed(x, state, positions, noise, jnp.stack(probs, 1) * offered[:, :, None], drafts)
    else:
        noised = x + jnp.where(state.settings[:, :1] > 0, noise, 0) if key.level > GREEDY else x
        chosen = jnp.argmax(noised, axis=-1)
        hits = chosen[: d * q].reshape(d, q)[:, :-1] == drafts
    # Drafts up to the first that is no hit are kept, and what was chosen there.
    kept = 1 + jnp.sum(jnp.cumprod(offered & hits, axis=1), axis=1)
    place, own, prompts = jnp.arange(q), chosen[: d * q].reshape(d, q), chosen[d * q :]
    tokens = jnp.where(place < kept[:, None] - 1, jnp.pad(drafts, ((0, 0), (0, 1))), own)
    newest = jnp.take_along_axis(tokens, kept[:, None] - 1, axis=1)[:, 0]
    last = last.at[slots].set(jnp.concatenate([newest, prompts]))
    keeps = jnp.concatenate([(place < kept[:, None]).reshape(-1), jnp.ones(p, bool)])
    tokens = jnp.concatenate([tokens.reshape(-1), prompts])
    if key.level == SHAPED:
        counts = counts.at[at, tokens].add(2 * keeps)
    told = _told(logits, tokens) if key.told else ()
    return (tokens, kept, *told), last, counts if key.level == SHAPED else None


def _told(logits: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """Log probabilities of a token of each row, and of the likeliest."""
    total = jax.nn.logsumexp(logits, axis=-1)
    top, values = filters.likeliest(logits, min(TOLD, logits.shape[1]))
    return jnp.take_along_axis(logits, tokens[:, None], axis=1)[:, 0] - total, top, values - total[:, None]


def _weighed(x: Any, state: SlotState, positions: Any, noise: Any, drawn: Any, drafts: Any) -> tuple[Any, Any]:
    """Rejection sampling: a draft drawn from q [d, k, v] stays with probability p/q; in place of the first that does
    not, a token is drawn from what p has above q, and after the last that does, from p. Returns the tokens for all
    places and which drafts stay."""
    d, k = drafts.shape
    p = filters.distribution(x, state)
    uniform = jax.vmap(jax.random.uniform)(state.keys(positions, filters.ACCEPT))
    rows = jnp.arange(d)[:, None] * (k + 1) + jnp.arange(k)
    stays = uniform[rows] * jnp.take_along_axis(drawn, drafts[:, :, None], 2)[:, :, 0] < p[rows, drafts]
    drawn = jnp.pad(drawn, ((0, 0), (0, 1), (0, 0))).reshape(d * (k + 1), -1)
    rest = jnp.maximum(p - jnp.pad(drawn, ((0, x.shape[0] - drawn.shape[0]), (0, 0))), 0)
    rest = jnp.where(jnp.max(rest, axis=-1, keepdims=True) > 0, rest, p)  # where both are equal but for rounding
    return jnp.argmax(jnp.log(rest) + noise, axis=-1), stays


class Sampler:
    """The settings of all slots, the token that each sampled last, and the programs. `mesh` has the ranks on its `data`
    axis; `weighed` says that drafts come from a model, with their probabilities."""

    def __init__(
        self, limits: EngineLimits, vocab: int, mesh: Mesh | None = None, seed: int = 0, weighed: bool = False
    ):
        self.limits, self.vocab, self.weighed, self.programs = limits, vocab, weighed, dict[Any, Any]()
        self.mesh = mesh or Mesh(numpy.array(jax.devices()[:1]), ("data",))
        self.sharding = NamedSharding(self.mesh, PartitionSpec("data"))
        size = limits.ranks, limits.sequences + 1
        self._need, self._told, self._host = (numpy.zeros(size, kind) for kind in (numpy.int8, bool, STATE))
        self._stale, self._free = True, dict[int, Any]()
        self._random = numpy.random.default_rng(seed)
        sizes = [size, (*size, vocab)]
        self._zeros = jax.jit(lambda: [jnp.zeros(size, jnp.int32) for size in sizes], out_shardings=self.sharding)
        self.last: Any = None
        self._counts: Any = None
        self.reset()
        put = jax.jit(lambda counts, at, row: counts.at[*at].set(row), donate_argnums=0, out_shardings=self.sharding)
        self._set_counts = put.lower(self._counts, (0, 0), numpy.zeros(vocab, numpy.int32)).compile()

    def reset(self) -> None:
        """Anew what steps write: a failed one may have taken it along."""
        self.last = self._counts = None  # first, so that there is room
        self.last, self._counts = self._zeros()

    @property
    def bytes(self) -> int:
        """Held on one chip."""
        return self._need[0].size * (self.vocab * 4 + STATE.itemsize)

    def admit(self, rank: int, slot: int, request: GenerateRequest, output: Sequence[int] = ()) -> None:
        """Give a slot to a request; `output` is what it generated before it was preempted."""
        s, at = request.sampling, (rank, slot)
        penalised = bool(s.presence or s.frequency or s.repetition != 1)
        filtering = s.top_k > 0 or s.top_p < 1 or s.min_p > 0
        temperature = s.temperature if s.temperature > COLD else 0
        plain = GREEDY if not temperature else FILTERED if filtering else PLAIN
        self._need[at] = SHAPED if penalised or s.bias or request.least or s.grammar else plain
        self._told[at] = s.logprobs is not None
        seed = int(self._random.integers(2**63)) if s.seed is None else s.seed
        edits = [(token, value, FOREVER) for token, value in s.bias.items()]
        edits += [(end, -numpy.inf, len(request.prompt) + request.least) for end in request.ends if request.least]
        entry = numpy.zeros((), STATE)
        entry["settings"] = temperature, s.top_k, s.top_p, s.min_p, s.presence, s.frequency, s.repetition
        entry["seed"] = (seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF
        for name, column in zip(("ids", "added", "until"), zip(*edits, strict=True), strict=False):
            entry[name][: len(edits)] = column
        self._host[at], self._stale = entry, True
        if penalised:
            row = 2 * numpy.bincount(numpy.asarray(output, int), minlength=self.vocab).astype(numpy.int32)
            row[request.prompt] += 1
            self._counts = self._set_counts(self._counts, at, row)

    def state(self) -> Any:
        """The settings on the device, brought there where they changed; a copy, because steps under way still read the
        old ones."""
        if self._stale:
            words = self._host.copy()[..., None].view(numpy.uint32)
            self._state, self._stale = jax.device_put(words, self.sharding), False
        return self._state

    def level(self, batch: StepBatch) -> int:
        """What the rows of a step ask for."""
        return int(numpy.take_along_axis(self._need, batch.slots, 1).max(initial=GREEDY))

    def sample(self, logits: Any, batch: StepBatch, masks: Any = None, probs: tuple[Any, ...] = ()) -> Sampled:
        """Choose a step's tokens and remember the last of each slot; a prompt's chunk that is not its last one has the
        slot of padding. `masks` [R, D+P, ⌈v/32⌉] are allowed tokens as bits (`constraints`); `probs` are what drafts
        were drawn from (`speculation`)."""
        told = bool(numpy.take_along_axis(self._told, batch.slots, 1).any())
        key = self._key(batch.shape, SHAPED if masks is not None else self.level(batch), told)
        d, q, shaped, ranks = key.decodes, key.queries, key.level == SHAPED, len(batch.tokens)
        drafts = batch.tokens[:, : d * q].reshape(ranks, d, q)[:, :, 1:].reshape(ranks, d * (q - 1))
        positions = numpy.take_along_axis(batch.positions, batch.reads, 1)
        words = numpy.concatenate([batch.slots, positions, batch.drafted, drafts], 1)
        more = (self._counts, self._allowed(key) if masks is None else masks) if shaped else (None, None)
        program, given = self.programs.get(key) or self._build(key), (self.state(), self.last, self._placed(logits))
        found, self.last, counts = program(*given, words, *more, probs if key.weighed else None)
        self._counts = counts if shaped else self._counts
        return Sampled(*found)

    def warm(self, logits: Any, batch: StepBatch) -> None:
        """Sample a step of padding in every way that needs no draft's probabilities."""
        for level in range(SHAPED + 1 if not self.weighed else GREEDY + 1):
            self._need[:, -1] = level
            self.sample(logits, batch).fetch()
        self._need[:, -1] = GREEDY

    def score(self, logits: Any, tokens: Any) -> Sampled:
        """Log probabilities of tokens [R, D] that were there already, from a step's logits [R, D, v] before them."""
        rows = tokens.shape[1]
        return Sampled(tokens, None, *(self.programs.get(rows) or self._build(rows))(self._placed(logits), tokens))

    def _placed(self, logits: Any) -> Any:
        return logits if logits.sharding == self.sharding else jax.device_put(logits, self.sharding)

    def _key(self, shape: StepShape, level: int, told: bool) -> SamplingProgram:
        queries = shape.queries if shape.decodes else 1
        weighed = self.weighed and queries > 1 and level > GREEDY
        return SamplingProgram(shape.decodes, queries, shape.prompts, level, told, weighed)

    def _allowed(self, key: SamplingProgram) -> Any:
        """Bits of rows without a grammar, on the device."""
        rows = key.decodes + key.prompts
        if rows not in self._free:
            bits = numpy.full((self.limits.ranks, rows, -(-self.vocab // 32)), 0xFFFFFFFF, numpy.uint32)
            self._free[rows] = jax.device_put(bits, self.sharding)
        return self._free[rows]

    def compile(self, shapes: list[StepShape], listener: Listener | None = None, threads: int = 4) -> None:
        """Build every program that steps of these shapes may need."""
        listener = listener or Listener()
        keys: set[SamplingProgram | int] = {s.decodes for s in shapes if s.queries == 1 and not s.tokens}
        keys |= {self._key(shape, level, told) for shape in shapes for level in range(4) for told in (False, True)}
        with ThreadPoolExecutor(threads) as pool:
            for done, _ in enumerate(pool.map(self._build, keys), 1):
                listener.step(done, len(keys))

    def _build(self, key: SamplingProgram | int) -> Any:
        """A step's program, or the one that scores so many tokens."""
        if isinstance(key, int):
            arrays = self.array(jnp.float32, key, self.vocab), self.array(jnp.int32, key)
            self.programs[key] = self.over_ranks(_told).lower(*arrays).compile()
            return self.programs[key]
        d, q, p = key[:3]
        logits, words = self.array(jnp.float32, d * q + p, self.vocab), self.array(jnp.int32, 2 * (d * q + p) + d)
        more = (self._counts, self._allowed(key)) if key.level == SHAPED else (None, None)
        probs = (self.array(jnp.float32, d, self.vocab),) * (q - 1) if key.weighed else None
        program = self.over_ranks(partial(_choose, key), donated=(4,) if key.level == SHAPED else ())
        self.programs[key] = program.lower(self.state(), self.last, logits, words, *more, probs).compile()
        return self.programs[key]

    def array(self, kind: Any, *size: int) -> jax.ShapeDtypeStruct:
        """An array by rank, to compile with."""
        return jax.ShapeDtypeStruct((self.limits.ranks, *size), kind, sharding=self.sharding)

    def over_ranks(self, function: Callable[..., Any], donated: tuple[int, ...] = ()) -> Any:
        """A function of one rank, for all of them: each on its own chips."""
        spec = PartitionSpec("data")
        mapped = jax.shard_map(jax.vmap(function), mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return jax.jit(mapped, donate_argnums=donated)
