"""Tokens from logits: one program a step, compiled ahead, with every sequence's settings in its slot on the device.

What a step needs is chosen on the host from what its rows ask for, and nothing more is computed: `GREEDY` (the largest logit), `PLAIN`
(temperature alone), `FILTERED` (min-p, top-k, top-p), `SHAPED` (penalties, bias, fewest tokens and grammars before those). Each exists with
and without log probabilities. These are of the model's own distribution, before anything else is done to it, as OpenAI and vLLM tell them.

The noise that chooses a token comes from its request's seed and its position in the sequence: the same seed gives the same tokens in
any batch, slot or rank, and after a preemption. Drafts of n-grams, and of a greedy row, are accepted where they are the token that is
chosen anyway, so they change nothing at all. Drafts of a model are accepted by rejection sampling (Leviathan et al., 2023; Chen et al., 2023),
which leaves the distribution as it is; there the tokens of a seed depend on what was drafted.

Counts for penalties are 4 bytes for each slot and token of the vocabulary (33 MB for 64 slots of 128k), so they are there from the start.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from dragonscale.errors import InputError
from dragonscale.runtime.serve import filters
from dragonscale.runtime.serve.requests import ServeRequest
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape

GREEDY, PLAIN, FILTERED, SHAPED = range(4)
TOLD = 20
"""Likeliest tokens that are told: OpenAI's limit."""
EDITS = 320
"""Tokens of a sequence whose logits are edited: OpenAI's 300 for a bias, and ends."""
FOREVER = numpy.int32(2**31 - 1)


class SlotState(NamedTuple):
    """Settings by slot, ranks in front: the columns of `filters`, seeds in two words, from which length on tokens are new, and tokens whose
    logits get something added while the sequence is shorter than `until`."""

    settings: Any
    seeds: Any
    begun: Any
    ids: Any
    added: Any
    until: Any


@dataclass(frozen=True)
class Sampled:
    """What a step chose, on the device: tokens [R, D·Q+P] in the order of the batch's `reads`, of which `counts` [R, D] are to be kept of each
    decoding row (at least one). With log probabilities: of the tokens, and of the likeliest [R, D·Q+P, 20]."""

    tokens: Any
    counts: Any
    logprobs: Any = None
    top: Any = None
    top_logprobs: Any = None

    def fetch(self) -> "Sampled":
        """The same in numpy; waits for the device."""
        names = [f.name for f in fields(self)]
        return Sampled(**dict(zip(names, jax.device_get([getattr(self, name) for name in names]), strict=True)))


@dataclass(frozen=True)
class SamplingProgram:
    """Which program: rows as in the step's shape, what is computed, whether drafts come with probabilities."""

    decodes: int
    queries: int
    prompts: int
    level: int
    told: bool
    weighed: bool = False

    @property
    def read(self) -> int:
        return self.decodes * self.queries + self.prompts

    def split(self, words: Any) -> list[Any]:
        """Slots [rows], positions [read], drafted [d] and drafts [d, q-1] from the one array that goes to the device."""
        d, q, p = self.decodes, self.queries, self.prompts
        slots, positions, drafted, drafts = jnp.split(words, numpy.cumsum([d + p, self.read, d]))
        return [slots, positions, drafted, drafts.reshape(d, q - 1)]


def check_sampling(request: ServeRequest, vocab: int) -> None:
    """Refuse what the sampler has no room for."""
    bias = request.sampling.bias
    if wrong := [token for token in bias if not 0 <= token < vocab]:
        raise InputError(f"The bias is for token {wrong[0]}; the vocabulary's tokens are 0 to {vocab - 1}.")
    if len(bias) + len(request.ends) > EDITS:
        raise InputError(
            f"A bias for {len(bias)} tokens and {len(request.ends)} end tokens were given; together at most {EDITS} are allowed."
        )


def _choose(
    key: SamplingProgram, state: SlotState, last: Any, logits: Any, words: Any, counts: Any, bits: Any, probs: Any
) -> Any:
    """One rank's step: of logits [read, v] the sampled, the new `last` [slots+1], the new counts [slots+1, v] (where they are kept)."""
    d, q = key.decodes, key.queries
    slots, positions, drafted, drafts = key.split(words)
    of_row = numpy.concatenate([numpy.repeat(numpy.arange(d), q), d + numpy.arange(key.prompts)])
    at = slots[of_row]
    settings, seeds, vocab = state.settings[at], state.seeds[at], logits.shape[-1]
    offered = jnp.arange(q - 1) < drafted[:, None]
    x = logits
    if key.level == SHAPED:
        seen = filters.before(drafts, drafted, counts[at]) if q > 1 else counts[at]
        added = jnp.where(positions[:, None] + 1 < state.until[at], state.added[at], 0)
        x = filters.shaped(x, settings, seen, (state.ids[at], added), bits[of_row])
    if key.level > GREEDY:
        x = filters.tempered(x, settings)
        x = filters.filtered(x, settings) if key.level >= FILTERED else x
    noise = filters.gumbel(seeds, positions, filters.TOKEN, vocab) if key.level > GREEDY else 0
    if key.weighed:
        hits, chosen = _weigh(key, filters.distribution(x, settings), probs, drafts, offered, seeds, positions, noise)
    else:
        chosen = filters.largest(x + jnp.where(settings[:, filters.TEMPERATURE, None] > 0, noise, 0))
        hits = offered & (chosen[: d * q].reshape(d, q)[:, :-1] == drafts)
    tokens, kept = filters.accepted(hits, drafts, chosen[: d * q].reshape(d, q))
    newest = jnp.take_along_axis(tokens, kept[:, None] - 1, axis=1)[:, 0]
    tokens = jnp.concatenate([tokens.reshape(-1), chosen[d * q :]])
    # A prompt's chunk that is not its last one gives a token too, which nobody asked for: it goes to the slot of padding.
    real = jnp.where(positions + 1 >= state.begun[at], at, last.shape[0] - 1)
    ends = numpy.concatenate([numpy.arange(d) * q, d * q + numpy.arange(key.prompts)])
    last = last.at[real[ends]].set(jnp.concatenate([newest, chosen[d * q :]]))
    if key.level == SHAPED:
        keeps = jnp.concatenate([(jnp.arange(q) < kept[:, None]).reshape(-1), jnp.ones(key.prompts, bool)])
        counts = counts.at[real, tokens].add(jnp.where(keeps, 2, 0))
    told = ()
    if key.told:
        rest = jax.nn.logsumexp(logits, axis=-1)
        top, values = filters.likeliest(logits, min(TOLD, vocab))
        told = jnp.take_along_axis(logits, tokens[:, None], axis=1)[:, 0] - rest, top, values - rest[:, None]
    return (tokens, kept, *told), last, counts if key.level == SHAPED else None


def _weigh(
    key: SamplingProgram, p: Any, probs: Any, drafts: Any, offered: Any, seeds: Any, positions: Any, noise: Any
) -> Any:
    """Rejection sampling: a draft drawn from q stays with probability p/q; in place of the first that does not, a token is drawn from what
    p has above q, and after the last that does, from p."""
    d, q = drafts.shape[0], drafts.shape[1] + 1
    drawn = jnp.stack(probs, axis=1)  # [d, q-1, v]
    drawn = jnp.pad(drawn * offered[:, :, None], ((0, 0), (0, 1), (0, 0))).reshape(d * q, -1)
    drawn = jnp.pad(drawn, ((0, key.prompts), (0, 0)))
    uniform = jax.vmap(jax.random.uniform)(filters.keys_of(seeds, positions, filters.ACCEPT))
    pairs = (jnp.arange(d)[:, None] * q + jnp.arange(q - 1), drafts)
    hits = offered & (uniform[pairs[0]] * drawn[pairs] < p[pairs])
    rest = jnp.maximum(p - drawn, 0)
    rest = jnp.where(jnp.max(rest, axis=-1, keepdims=True) > 0, rest, p)  # equal but for rounding
    return hits, filters.largest(jnp.log(rest) + noise)


@dataclass
class Sampler:
    """The settings of all slots, the token that each sampled last, and the programs. `mesh` has the ranks on its `data` axis; without one
    everything is on one device. `weighed`: drafts come from a model, with their probabilities."""

    limits: EngineLimits
    vocab: int
    mesh: Mesh | None = None
    seed: int = 0
    weighed: bool = False
    programs: dict[SamplingProgram, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranks, slots = self.limits.ranks, self.limits.sequences + 1
        single = SingleDeviceSharding(jax.devices()[0])
        self.sharding = NamedSharding(self.mesh, PartitionSpec("data")) if self.mesh else single
        self._random = numpy.random.default_rng(self.seed)
        self._need = numpy.zeros((ranks, slots), numpy.int8)
        self._told = numpy.zeros((ranks, slots), bool)
        settings = numpy.tile(numpy.array([0, 0, 1, 0, 0, 0, 1], numpy.float32), (ranks, slots, 1))
        seeds, begun = numpy.zeros((ranks, slots, 2), numpy.uint32), numpy.full((ranks, slots), FOREVER)
        edits = [numpy.zeros((ranks, slots, EDITS), kind) for kind in (numpy.int32, numpy.float32, numpy.int32)]
        self._host = SlotState(settings, seeds, begun, *edits)
        self._stale = set(SlotState._fields)
        self._state = self._host
        self._allowed: dict[int, Any] = {}
        self.reset()
        setter = lambda counts, rank, slot, row: counts.at[rank, slot].set(row)  # noqa: E731
        self._set_counts = jax.jit(setter, donate_argnums=0, out_shardings=self.sharding)

    def reset(self) -> None:
        """Anew what steps write: a failed one may have taken it along."""
        size = self.limits.ranks, self.limits.sequences + 1
        self.last = self._put(numpy.zeros(size, numpy.int32))
        self._counts = jax.jit(lambda: jnp.zeros((*size, self.vocab), jnp.int32), out_shardings=self.sharding)()

    def _put(self, array: Any) -> Any:
        return jax.device_put(array, self.sharding)

    @property
    def bytes(self) -> int:
        """Held on one chip all the time."""
        return 4 * (self.limits.sequences + 1) * (self.vocab + 3 * EDITS + 11)

    def admit(self, rank: int, slot: int, request: ServeRequest, output: Sequence[int] = ()) -> None:
        """Give a slot to a request; `output` is what it generated before it was preempted."""
        s, host, at = request.sampling, self._host, (rank, slot)
        penalised = bool(s.presence or s.frequency or s.repetition != 1)
        edited = bool(s.bias or request.least)
        if s.temperature > 0:
            self._need[at] = FILTERED if s.top_k > 0 or s.top_p < 1 or s.min_p > 0 else PLAIN
        else:
            self._need[at] = GREEDY
        self._need[at] = SHAPED if penalised or edited or s.grammar else self._need[at]
        self._told[at] = s.logprobs is not None
        host.settings[at] = s.temperature, s.top_k, s.top_p, s.min_p, s.presence, s.frequency, s.repetition
        seed = int(self._random.integers(2**63)) if s.seed is None else s.seed
        host.seeds[at] = (seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF
        host.begun[at] = len(request.prompt) + len(output)
        self._stale |= {"settings", "seeds", "begun"}
        if edited or host.until[at].any():
            edits = [(token, value, FOREVER) for token, value in s.bias.items()]
            edits += [(end, -numpy.inf, len(request.prompt) + request.least) for end in request.ends if request.least]
            host.until[at] = 0
            for i, edit in enumerate(edits):
                host.ids[*at, i], host.added[*at, i], host.until[*at, i] = edit
            self._stale |= {"ids", "added", "until"}
        if penalised:
            row = 2 * numpy.bincount(numpy.asarray(output, int), minlength=self.vocab).astype(numpy.int32)
            row[request.prompt] += 1
            self._counts = self._set_counts(self._counts, numpy.int32(rank), numpy.int32(slot), row)

    def state(self) -> SlotState:
        """The settings on the device, brought there where they changed."""
        if self._stale:
            # A copy: the host's arrays change while earlier steps still read them.
            changed = {name: self._put(getattr(self._host, name).copy()) for name in self._stale}
            self._state = self._state._replace(**changed)
            self._stale = set()
        return self._state

    def level(self, slots: numpy.ndarray) -> int:
        """What the rows of a step ask for, by their slots [R, rows]."""
        return int(numpy.take_along_axis(self._need, slots, 1).max(initial=GREEDY))

    def sample(
        self, logits: Any, batch: StepBatch, masks: numpy.ndarray | None = None, probs: tuple[Any, ...] = ()
    ) -> Sampled:
        """Choose a step's tokens and remember the last of each slot. `masks` [R, D+P, ⌈v/32⌉] are allowed tokens as bits (`constraints`);
        `probs` are what each draft was drawn from, [R, D, v] for each of the Q-1."""
        shape = batch.shape
        d, q = shape.decodes, shape.queries if shape.decodes else 1
        level = SHAPED if masks is not None else self.level(batch.slots)
        told = bool(numpy.take_along_axis(self._told, batch.slots, 1).any())
        key = SamplingProgram(d, q, shape.prompts, level, told, bool(probs) and level > GREEDY)
        drafts = (
            batch.tokens[:, : d * q].reshape(self.limits.ranks, d, q)[:, :, 1:].reshape(self.limits.ranks, d * (q - 1))
        )
        words = [batch.slots, numpy.take_along_axis(batch.positions, batch.reads, 1), batch.drafted, drafts]
        program = self.programs.get(key) or self._build(key)
        extra = self._extra(key, masks, probs)
        found, self.last, counts = program(
            self.state(), self.last, self._put(logits), numpy.concatenate(words, 1), *extra
        )
        self._counts = self._counts if counts is None else counts
        return Sampled(*found)

    def _extra(self, key: SamplingProgram, masks: Any, probs: Any) -> tuple[Any, Any, Any]:
        rows = key.decodes + key.prompts
        if key.level == SHAPED and masks is None and rows not in self._allowed:
            self._allowed[rows] = self._put(
                numpy.full((self.limits.ranks, rows, -(-self.vocab // 32)), 0xFFFFFFFF, numpy.uint32)
            )
        bits = None if key.level < SHAPED else self._allowed[rows] if masks is None else masks
        return self._counts if key.level == SHAPED else None, bits, tuple(probs) if key.weighed else None

    def compile(
        self, shapes: Iterable[StepShape], listener: Callable[[int, int], None] | None = None, threads: int = 8
    ) -> None:
        """Build every program that steps of these shapes may need; `listener` hears how many of how many are ready."""
        sizes = {(s.decodes, s.queries if s.decodes else 1, s.prompts) for s in shapes if s.rows}
        keys = [
            SamplingProgram(*size, level, told, self.weighed and size[1] > 1 and level > GREEDY)
            for size in sorted(sizes) for level in range(4) for told in (False, True)
        ]  # fmt: skip
        with ThreadPoolExecutor(threads) as pool:
            for done, _ in enumerate(pool.map(self._build, keys), 1):
                if listener:
                    listener(done, len(keys))

    def _build(self, key: SamplingProgram) -> Any:
        ranks, rows = self.limits.ranks, key.decodes + key.prompts

        def array(kind: Any, *size: int) -> Any:
            return jax.ShapeDtypeStruct((ranks, *size), kind, sharding=self.sharding)

        words = rows + key.read + key.decodes * key.queries
        counts = array(jnp.int32, self.limits.sequences + 1, self.vocab) if key.level == SHAPED else None
        bits = array(jnp.uint32, rows, -(-self.vocab // 32)) if key.level == SHAPED else None
        probs = (array(jnp.float32, key.decodes, self.vocab),) * (key.queries - 1) if key.weighed else None
        state = jax.tree.map(lambda a: array(a.dtype, *a.shape[1:]), self._host)
        last, logits = array(jnp.int32, self.limits.sequences + 1), array(jnp.float32, key.read, self.vocab)
        program = self.over_ranks(partial(_choose, key), donate=(4,) if counts is not None else ())
        self.programs[key] = program.lower(state, last, logits, array(jnp.int32, words), counts, bits, probs).compile()
        return self.programs[key]

    def over_ranks(self, function: Callable[..., Any], donate: tuple[int, ...] = ()) -> Any:
        """A function of one rank, for all of them: each on its own chips."""
        mapped: Any = jax.vmap(function)
        if self.mesh:
            spec = PartitionSpec("data")
            mapped = jax.shard_map(mapped, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)
        return jax.jit(mapped, donate_argnums=donate)
