"""A model program, run: the embedding, the layers, the head, the loss.

Layers of equal kind are scanned; what repeats as a pattern (a windowed layer, then a full one) is scanned as a pattern.
Each chip runs its own part, see `runtime.lines`.
"""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dragonscale.models.program import Program, Stretch, stretches
from dragonscale.runtime.lines import PassSetting, SectionPass, Tensors, run_section
from dragonscale.runtime.parameters import Tree
from dragonscale.runtime.place import WHOLE, Place


def layer_weights(params: Tree, stretch: Stretch) -> list[Tensors]:
    """The weights of a stretch's layers, one entry for each place of the pattern, stacked (or listed)
    over its repeats."""
    chosen = []
    for name, start in zip(stretch.pattern, stretch.starts, strict=True):
        every = stretch.pattern.count(name)
        stop = start + every * stretch.times
        chosen.append({own: value[start:stop:every] for own, value in params[name].items()})
    return chosen


def unstacked(params: Tree) -> Tree:
    """The same weights with a list of arrays for each stack of layers. A loop over lists reads every weight in place,
    where a scan may copy each layer's out of its stack first: decoding, which does little else than read weights, wants
    lists."""
    ends = {name: params[name] for name in ("embed", "head")}
    return {name: {key: list(value) for key, value in own.items()} for name, own in params.items()} | ends


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], jax.Array)


def over_layers(layer: Any, carry: Any, stacked: Any, times: int) -> tuple[Any, Any]:
    """A scan over stacks of layers, or a loop where they are lists; what comes out of each layer is stacked or listed
    likewise."""
    if not any(_is_list(leaf) for leaf in jax.tree.leaves(stacked, is_leaf=_is_list)):
        return jax.lax.scan(layer, carry, stacked)
    made = []
    for place in range(times):
        carry, out = layer(carry, jax.tree.map(operator.itemgetter(place), stacked, is_leaf=_is_list))
        made.append(out)
    return carry, jax.tree.map(lambda *each: list(each), *made)


def embed(params: Tree, program: Program, tokens: jax.Array, positions: jax.Array, setting: PassSetting) -> jax.Array:
    """Tokens to the residual stream."""
    section = program.sections[0]
    return run_section(SectionPass(section, setting, positions, params["embed"], tokens))["R"]


def head(params: Tree, program: Program, residual: jax.Array, setting: PassSetting) -> jax.Array:
    """The residual stream to logits, in fp32; over several chips, this chip's part of the vocabulary."""
    return head_and_hidden(params, program, residual, setting)[0]


def head_and_hidden(
    params: Tree, program: Program, residual: jax.Array, setting: PassSetting
) -> tuple[jax.Array, jax.Array]:
    """Logits, and the hidden state that they are made of: the residual stream after its last norm."""
    section = program.sections[-1]
    positions = jnp.zeros((1, residual.shape[1]), jnp.int32)
    shared = {**params["embed"], **params["head"]}
    made = run_section(SectionPass(section, setting, positions, shared, tensors={"R": residual}))
    cap = setting.numerics.logits_cap
    with jax.named_scope("head/cap"):
        logits = made["Y"].astype(jnp.float32)
        return cap * jnp.tanh(logits / cap) if cap else logits, made["R"]


Remats = tuple[tuple[float, Callable[[Any], Any] | None], ...]
"""Up to which part of the layers each policy of what is kept goes, the last one to all of them."""


def through(program: Program, stretch: Stretch, setting: PassSetting, positions: jax.Array, remat: Any = None) -> Any:
    """A function of (residual stream, weights of one repeat of a stretch), as scans want it; each layer keeps what
    `remat` lets it keep, and gives the load of its experts where that is watched."""
    sections = {section.name: section for section in program.sections}

    def one(name: str) -> Any:
        def run(carry: jax.Array, own: Tensors) -> tuple[jax.Array, jax.Array | None]:
            one = SectionPass(sections[name], setting, positions, own, tensors={"R": carry})
            return run_section(one)["R"], one.load

        return run if remat is None else remat(run)

    def layer(carry: jax.Array, weights: list[Tensors]) -> tuple[jax.Array, list[jax.Array | None]]:
        loads = []
        for name, own in zip(stretch.pattern, weights, strict=True):
            carry, load = one(name)(carry, own)
            loads.append(load)
        return carry, loads

    return layer


def forward(
    params: Tree,
    program: Program,
    tokens: jax.Array,
    setting: PassSetting,
    length: int | None = None,
    remats: Remats = (),
) -> jax.Array:
    """Logits [b, t, v] of whole sequences of `length` tokens (where chips have parts of them, longer than `tokens`)."""
    return forward_and_loads(params, program, tokens, setting, length, remats)[0]


def forward_and_loads(
    params: Tree,
    program: Program,
    tokens: jax.Array,
    setting: PassSetting,
    length: int | None = None,
    remats: Remats = (),
) -> tuple[jax.Array, list[jax.Array]]:
    """The same, and the loads [layers, e] of experts where they are watched."""
    loads: list[Any] = []
    positions = jnp.arange(length or tokens.shape[1])[None]
    residual = embed(params, program, tokens, positions, setting)
    for stretch in stretches(program.order):
        weights, start = layer_weights(params, stretch), 0
        for share, remat in remats or ((1.0, None),):
            stop = round(share * stretch.times)
            own = weights
            if stop - start < stretch.times:
                own = [{name: value[start:stop] for name, value in each.items()} for each in weights]
            if stop > start:
                layer = through(program, stretch, setting, positions, remat)
                residual, found = over_layers(layer, residual, own, stop - start)
                loads += jax.tree.leaves(found)
            start = stop
    return head(params, program, residual, setting), loads


@jax.named_scope("loss")
def losses(logits: jax.Array, targets: jax.Array, place: Place = WHOLE, split: tuple[str, ...] = ()) -> jax.Array:
    """The cross-entropy of each next token, of logits [b, t, v] whose vocabulary may be split over mesh axes; 0 where a
    target is negative, which is not learnt."""
    most = jax.lax.stop_gradient(logits.max(-1))
    most = jax.lax.pmax(most, split) if split else most
    total = jnp.exp(logits - most[..., None]).sum(-1)
    at = targets - place.index(split) * logits.shape[-1]
    # A comparison, not a gather: each chip has the target's logit or zeros.
    chosen = jnp.where(jnp.arange(logits.shape[-1]) == at[..., None], logits, 0.0).sum(-1)
    if split:
        total, chosen = jax.lax.psum((total, chosen), split)
    return jnp.where(targets < 0, 0.0, most + jnp.log(total) - chosen)


@jax.named_scope("loss")
def loss(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean cross-entropy of the next tokens."""
    return losses(logits.astype(jnp.float32), targets).mean()
