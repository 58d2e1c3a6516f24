"""The program of one packed step, as every chip of the plan's mesh runs it.

The model's own lines run as they do everywhere (`runtime.lines`), with the tokens of a rank as one sequence b=1, t=N;
what is special is the cache, whose `attend` writes the step's keys into their pages and reads each row's own
(`paged_attention`). A step's integers come as one array, so that they are one transfer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from dragonscale.models.lora import RANK
from dragonscale.models.program import Program, Section
from dragonscale.runtime.attention import Scoring, attend_causally
from dragonscale.runtime.decode import cached
from dragonscale.runtime.forward import embed, head_and_hidden
from dragonscale.runtime.lines import PassSetting, SectionPass, run_section
from dragonscale.runtime.packed_weights import served
from dragonscale.runtime.place import Place
from dragonscale.runtime.serve.paged_attention import PagedKeys, StepRows, attend_chunks, attend_decodes
from dragonscale.runtime.serve.steps import ARRAYS, EngineLimits, StepBatch, StepShape, empty_batch

FEWEST = 8
"""Rows through the head of a step with prompts: of a single one XLA's GPU compiler makes a product in fp32, of a
widened copy of the whole table."""


@dataclass
class PagedLayer:
    """A layer's cache during a step: what is new is kept at hand, and goes to its pages when attention
    wants all of it. With `reads` only those tokens of the pass go on behind its attention."""

    paged: PagedKeys
    rows: StepRows
    reads: jax.Array | None = None
    run: SectionPass | None = None

    def write(self, name: str, value: jax.Array) -> jax.Array:  # noqa: ARG002 (the protocol's)
        return value

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, how: Scoring) -> jax.Array:
        query, key, value = query[0], key[0], value[0]
        if (prepared := self._prepared()) is not None:
            query, self.paged = prepared
        else:
            with jax.named_scope("cache"):
                self.paged = self.paged.written(self.rows.writes, key, value)
        kept = self.paged.as_kept(key, value) if self.rows.shape.fresh else (key, value)
        made = attend_paged(query, *kept, self.paged, self.rows, how)
        if self.reads is None or self.run is None:
            return made[None]
        _narrow(self.run, self.reads)
        return made[self.reads][None]

    def _prepared(self) -> tuple[jax.Array, PagedKeys] | None:
        """Queries and the written cache, where a GPU makes both at once."""
        if self.rows.platform not in ("gpu", "cuda") or self.run is None:
            return None
        from dragonscale.runtime.serve.gpu_heads import prepared_heads  # it needs Pallas, which others need not load

        return prepared_heads(self.run, self.paged, self.rows)


def _narrow(run: SectionPass, reads: jax.Array) -> None:
    """Keep some of a pass's tokens: what follows attention is computed for each of them alone."""
    count = run.positions.shape[1]

    def some(value: Any) -> Any:
        return value[:, reads] if isinstance(value, jax.Array) and value.shape[1:2] == (count,) else value

    run.tensors, run.products = (
        {name: some(value) for name, value in of.items()} for of in (run.tensors, run.products)
    )
    run.forms, run.positions, run.adapters = {}, some(run.positions), some(run.adapters)
    run.parts, run.added = {}, {}


def attend_paged(
    query: jax.Array, key: jax.Array, value: jax.Array, cache: PagedKeys, rows: StepRows, how: Scoring
) -> jax.Array:
    """[N, n, g] of queries [N, n, h] at the rows' positions, against a cache in which this step's tokens are written;
    `key` [N, k, h] and `value` [N, k, g] are this step's own, as the cache keeps them."""
    if rows.platform in ("gpu", "cuda"):
        from dragonscale.runtime.serve.gpu_attention import attend_rows  # it needs Pallas, which others need not load

        return attend_rows(query, key, value, cache, rows, how)
    shape = rows.shape
    first = shape.decodes * shape.queries
    made: list[jax.Array] = []
    if shape.decodes:
        made.append(attend_decodes(query[:first], cache, rows, how, value.shape[-1]))
    if shape.fresh:
        at = jnp.arange(shape.tokens)[None]  # a fresh prompt is in order from position 0, its padding comes last
        own = (query[None, first:], key[None, first:], value[None, first:])
        made.append(attend_causally(*own, at, at, how)[0])
    elif shape.tokens:
        made.append(attend_chunks(query[first:], cache, rows, how, value.shape[-1]))
    return made[0] if len(made) == 1 else jnp.concatenate(made)


def _sizes(shape: StepShape, limits: EngineLimits) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The arrays of a step in the order in which they are packed."""
    empty = empty_batch(shape, 1, limits.width, limits.sequences)
    for name in ARRAYS:
        yield name, getattr(empty, name).shape[1:]


def packed_ints(batch: StepBatch) -> numpy.ndarray:
    """All arrays of a step as one [R, …]."""
    ranks = batch.tokens.shape[0]
    parts = [getattr(batch, name).reshape(ranks, -1) for name in ARRAYS]
    return numpy.concatenate(parts, 1, dtype=numpy.int32, casting="unsafe")


def packed_size(shape: StepShape, limits: EngineLimits) -> int:
    return sum(int(numpy.prod(size)) for _, size in _sizes(shape, limits))


def unpacked(ints: jax.Array, shape: StepShape, limits: EngineLimits, platform: str) -> StepRows:
    """A rank's arrays from its row of the packed ones."""
    found: dict[str, Any] = {}
    at = 0
    for name, size in _sizes(shape, limits):
        length = int(numpy.prod(size))
        found[name] = ints[at : at + length].reshape(size)
        at += length
    return StepRows(**found, shape=shape, page=limits.page, platform=platform, loras=limits.adapters)


def run_step(
    weights: Any, cache: list[PagedKeys], rows: StepRows, last: jax.Array, program: Program, setting: PassSetting
) -> tuple[jax.Array, jax.Array, list[PagedKeys]]:
    """Logits [1, read, v] of a rank in fp32, the hidden states below them, and the cache with the step's tokens."""
    shape = rows.shape
    tokens = rows.tokens
    if shape.decodes:
        at = jnp.arange(shape.decodes) * shape.queries
        newest = jnp.where(rows.from_last > 0, last[rows.slots[: shape.decodes]], tokens[at])
        tokens = newest if shape.packed == shape.decodes else tokens.at[at].set(newest)
    positions = rows.positions[None]
    residual = embed(weights, program, tokens[None], positions, setting)
    # Layers of a kind are traced once: a function that is called for each, which XLA then puts in its place.
    kinds = {name: jax.jit(partial(_layer, section, setting)) for name, section in served(program).items()}
    written: list[PagedKeys] = []
    reads = jnp.resize(rows.reads, (max(shape.read, FEWEST),)) if shape.tokens else None
    narrows = reads is not None and not setting.place.token_axes
    added = None
    for at, (name, own, paged) in enumerate(zip(program.order, weights["layers"], cache, strict=True), 1):
        last_reads = reads if narrows and at == len(cache) else None
        residual, added, paged = kinds[name](residual, added, own, paged, rows, last_reads)
        written.append(paged)
    if reads is not None and not narrows:
        with jax.named_scope("head/last"):
            residual = residual[:, reads]
    logits, hidden = (each[:, : shape.read] for each in head_and_hidden(weights, program, residual, setting))
    if split := setting.place.vocabulary(program):
        logits = jax.lax.all_gather(logits, split, axis=-1, tiled=True)
    return logits, hidden, written


def _layer(
    section: Section,
    setting: PassSetting,
    residual: jax.Array,
    added: Any,
    weights: Any,
    paged: PagedKeys,
    rows: StepRows,
    reads: jax.Array | None,
) -> tuple[jax.Array, Any, PagedKeys]:
    """The residual stream behind a layer, of the tokens `reads` alone where they are given, what was last added to it
    (which the next layer's norm may add itself), and the layer's cache."""
    layer = PagedLayer(paged, rows, reads)
    run = layer.run = SectionPass(
        section, setting, rows.positions[None], weights, stored=layer, tensors={"R": residual}
    )
    run.added = {} if added is None else {"R": added}
    run.adapters = rows.adapters_of(section.dims.get(RANK.name, 0))
    made = run_section(run)["R"]
    return made, run.added.get("R"), layer.paged


def cached_sizes(section: Section, place: Place) -> tuple[int, int, int | None, tuple[str, ...]]:
    """Of a layer's cache: heads of all chips, channels of a key and of a value (None: latents, which have no values of
    their own), and the axes that split the heads. A chip has the KV heads that its query heads use."""
    arrays, dims = cached(section), section.dims
    if arrays[0].names[-1] == "c":
        return 1, dims["c"] + dims["r"], None, ()
    axes = place.fit(place.rules.attending(next(op.inputs[0] for op in section.ops if op.function == "attend")), dims)
    ways, n, k = place.ways(axes.dim("n").axes), dims["n"], dims["k"]
    if k % ways == 0:
        heads = k
    else:  # as `matching_heads` chooses them
        mine, shared = n // ways, n // k
        heads = ways * (mine if mine % shared and shared % mine else max(1, mine // shared))
    return heads, dims["h"], dims["g"], axes.dim("n").axes
