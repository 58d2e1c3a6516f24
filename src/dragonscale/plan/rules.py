"""Layout rules: the mesh axes that split each kind of dim, which is what a parallelism scheme is.

`Rules` is a table of the axes of each kind of dim. From it follow the layout of any weight or activation at rest, the
layout that an op is computed in, and those of attention and of experts; and from the layouts every collective
(`dragonscale.plan.reader`). Training and serving are two ways to fill in the table.

Training (the book's and every large trainer's way): the batch is split over `data`, `fsdp` and `expert`, the sequence
over `context` (and over `tensor` between the blocks, where nothing else is), heads, hidden dims and the vocabulary over
`tensor`, experts over `expert`. A weight's state is split further over every axis that splits the tokens but not this
weight, except `data`.

Serving: weights never move, activations do. A plan's `tensor` is three axes, because experts and the cache may each use
a part of it: `expert` distributes experts, `share` is the degree beyond the number of KV heads, `tensor` is the rest.

>>> from dragonscale.physics.notation import parse_array
>>> rules = training_rules()
>>> print(
...     rules.activation(parse_array("X[b,t,d]")),
...     rules.used(parse_array("Wg[d,f]")),
...     rules.weight(parse_array("Wg[d,f]")),
... )
X[b_{data,fsdp,expert}, t_{context,tensor}, d] Wg[d, f_tensor] Wg[d_{fsdp,expert,context}, f_tensor]
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dragonscale.models.program import Op, is_weight
from dragonscale.physics.notation import Array
from dragonscale.physics.notation.array import without
from dragonscale.physics.sharding.reshard_step import layout_of

Axes = tuple[str, ...]
Layout = dict[str, Axes]

TRAINING = ("pipe", "data", "fsdp", "expert", "context", "tensor")
SERVING = ("pipe", "data", "context", "width", "expert", "tensor", "share")
"""The mesh axes, slowest first."""

TENSOR_DIMS = ("n", "k", "f", "z", "v", "i", "u", "mn", "mk", "f1", "d1", "vl")
"""Dims that tensor parallelism splits: heads of every kind, hidden dims, the vocabulary."""


def _once(lay: Callable[["Rules", Array], Array]) -> Callable[["Rules", Array], Array]:
    """A method of `Rules` that works out the layout of each array once: a search asks for the same ones over and
    over."""

    @functools.wraps(lay)
    def layout(self: "Rules", array: Array) -> Array:
        key = (lay.__name__, array)
        if key not in self.cache:
            self.cache[key] = lay(self, array)
        return self.cache[key]

    return layout


@dataclass(frozen=True)
class Rules:
    """The mesh axes of each kind of dim.

    Tokens: `batch` and `tokens` split b and t, `routed_batch` splits b on the way to experts; `spread` splits t further
    where no head or hidden dim is split (sequence parallelism), `routed_spread` does so on the way to experts. Heads:
    `heads` split `TENSOR_DIMS`, `width` splits d. Experts: `dealt` split the experts (e), `picks` the experts of a
    token (x), `sliced` their hidden dims; tokens reach them over `exchange` by AllToAll, or are gathered over
    `gathered`. Attention: `keys` split keys at rest, `cached_keys` those of the cache; while attention runs,
    `attend_batch`, `attend_tokens`, `attend_heads` and `attend_keys` apply. State: `state` splits a weight's optimizer
    state further as far as `zero` (the ZeRO stage) goes.

    With `lazy` a partial sum stays one until an op needs it whole. With `ring` keys and values are passed around
    instead of gathered. With `sums_everywhere` every gradient, of vectors too, is reduced over all axes that do not
    split its weight. `undivided` are dims with axes by which they do not divide; these split nothing.
    """

    batch: Axes
    routed_batch: Axes
    tokens: Axes
    spread: Axes
    routed_spread: Axes
    heads: Axes
    sliced: Axes
    picks: Axes
    dealt: Axes
    width: Axes
    keys: Axes
    attend_batch: Axes
    attend_tokens: Axes
    attend_heads: Axes
    attend_keys: Axes
    cached_keys: Axes
    exchange: Axes
    gathered: Axes = ()
    state: Axes = ()
    zero: int = 0
    lazy: bool = False
    ring: bool = False
    sums_everywhere: bool = False
    undivided: frozenset[tuple[str, Axes]] = frozenset()
    cache: dict[tuple[str, Array], Array] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Layouts by kind and array (`_once`)."""

    @_once
    def activation(self, array: Array) -> Array:
        """The layout of an activation between ops; tokens that are sent to experts lie with these."""
        split = self._token_layout(array.names, routed="x" in array.names and "e" not in array.names)
        split["x"] = self.picks
        if "t" not in array.names:
            split["s"] = self.keys
        return self.fit(array.with_layout(split))

    def _token_layout(self, names: Iterable[str], routed: bool) -> Layout:
        """The axes of b, t, d and the hidden dim of activations, on the way to experts (`routed`) or elsewhere. An axis
        splits the hidden dim where there is one, else the sequence (sequence parallelism)."""
        hidden = self._hidden(names, routed)
        if routed:
            batch, heads, spread = self.routed_batch, self.sliced, self.routed_spread
        else:
            batch, heads, spread = self.batch, self.heads, self.spread
        split: Layout = {"b": batch, "t": self.tokens, "d": self.width}
        if hidden:
            split[hidden] = heads
        else:
            split["t"] += spread
        return split

    @_once
    def used(self, array: Array) -> Array:
        """The layout of a weight while it is used."""
        return self.fit(array.with_layout(self._split(array)))

    def weight(self, array: Array) -> Array:
        """The layout of a weight between its uses."""
        if self.zero == 3:
            return self.optimizer_state(array)
        return self.used(array)

    @_once
    def optimizer_state(self, array: Array) -> Array:
        """The layout of a weight's optimizer state: sharded along the model's width, which more degrees divide than a
        head's size."""
        split = self._split(array)
        used = list(itertools.chain.from_iterable(split.values()))
        whole = [name for name in array.names if not split.get(name)]
        if self.zero >= 1 and whole and len(array.dims) > 1:  # vectors are too small to shard
            sharded = "d" if "d" in whole else whole[0]
            split[sharded] = without(self.state, used)
        return self.fit(array.with_layout(split))

    def at_rest(self, array: Array) -> Array:
        """The layout of a weight or an activation between its uses."""
        if is_weight(array):
            return self.weight(array)
        return self.activation(array)

    def computing(self, op: Op) -> Layout:
        """The axes of each index while an op is computed: an axis splits one index of an op at most."""
        names = list(itertools.chain.from_iterable(array.names for array in op.arrays))
        # each choice (x) of a token goes to the chip of its expert, whose weights are selected (e:x)
        routed = "x" in names and any(dim.select for weight in op.weights for dim in weight.dims)
        split = self._token_layout(names, routed)
        if routed:
            split["x"] = self.picks
        fitting: Layout = {}
        for name, axes in split.items():
            if dividing := self._dividing(name, axes):
                fitting[name] = dividing
        return fitting

    def for_line(self, array: Array, now: Array, op: Op) -> Array:
        """The layout in which an op needs an operand; `now` is the operand's present layout."""
        if is_weight(array):
            return self.used(array)
        if op.function == "einsum":
            return self.fit(now.with_layout(self.computing(op)))
        if op.function in ("attend", "score"):
            return self.attending(array)
        if op.function == "join" and op.output is not None:
            return self.fit(array.with_layout(layout_of(self.activation(op.output))))
        return now

    def of_line(self, op: Op) -> Array:
        """The layout of an einsum's result, with its partial sums."""
        assert op.output is not None
        split = self.computing(op)
        partial = tuple(axis for name in op.einsum.contracted for axis in split.get(name, ()))
        return self.fit(op.output.with_layout(split, partial))

    def looked_up(self, array: Array) -> Array:
        """The layout of rows looked up in a table that is split over the vocabulary: partial sums, as each chip has the
        rows of some tokens only."""
        return self.fit(array.with_layout({"b": self.batch, "t": self.tokens, "d": self.width}, self.heads))

    def attending(self, array: Array) -> Array:
        """The layout of a query, key, value or result while attention runs."""
        split: Layout = {"b": self.attend_batch, "t": self.attend_tokens, "s": self.attend_keys, "m": self.attend_keys}
        split |= dict.fromkeys(TENSOR_DIMS, self.attend_heads)
        return self.fit(array.with_layout(split))

    @property
    def trades(self) -> bool:
        """Whether attention exchanges a part of the sequence of all heads for the whole sequence of some (Ulysses)."""
        return self.attend_tokens != self.tokens

    def cached(self, array: Array) -> Array:
        """The layout of an array of the KV cache at rest: split along the sequence, whatever is computed."""
        attending = self.attending(array)
        # an array has keys (s), compressed keys (m), or neither; a layout may name dims that it lacks
        split = layout_of(attending) | {"s": self.cached_keys, "m": self.cached_keys}
        return self.fit(attending.with_layout(split))

    def home(self, routed: Array) -> Array:
        """The layout of a tensor for experts before it is sent, or after it is back with its tokens."""
        return routed.with_layout(layout_of(routed) | {"b": self.batch, "x": ()})

    @property
    def beyond(self) -> Axes:
        """Axes that split experts and over which tokens are not sent: each chip has all tokens and computes those of
        its experts."""
        return without(self.dealt, (*self.exchange, *self.gathered))

    def fit(self, array: Array) -> Array:
        """A layout without the axes by which a dim does not divide."""
        if not self.undivided:
            return array
        layout = {dim.name: self._dividing(dim.name, dim.axes) for dim in array.dims}
        return array.with_layout(layout, array.partial)

    def _dividing(self, name: str, axes: Axes) -> Axes:
        while axes and (name, axes) in self.undivided:
            axes = axes[:-1]  # the minor axis goes first, so the blocks stay neighbours
        return axes

    def among(self, axes: Iterable[str]) -> "Rules":
        """The rules with some of the axes only, such as those of more than one chip."""
        chosen = set(axes)
        restricted: dict[str, Axes] = {}
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                restricted[name] = tuple(axis for axis in value if axis in chosen)
        return replace(self, **restricted)

    def _hidden(self, names: Iterable[str], routed: bool) -> str | None:
        """The dim of an op or array that tensor parallelism splits, if any."""
        if not (self.sliced if routed else self.heads):
            return None
        return next((name for name in TENSOR_DIMS if name in names), None)

    def _split(self, array: Array) -> Layout:
        """The axes of a weight's dims while it is used; a weight of experts has a dim that tokens select (e:x)."""
        experts = any(dim.select for dim in array.dims)
        hidden = self._hidden(array.names, experts)
        split: Layout = {}
        for dim in array.dims:
            if dim.select:
                split[dim.name] = self.dealt
            elif dim.name == hidden:
                split[dim.name] = self.sliced if experts else self.heads
            elif dim.name == "d" and self.width:
                split[dim.name] = self.width
        return split


def training_rules(
    sequence: bool = True, zero: int = 3, folded: bool = True, context_by: str = "gather", fold_context: bool = False
) -> Rules:
    """The layouts of a training plan.

    `sequence` splits residuals over `tensor` (sequence parallelism). `folded` distributes experts over `tensor` too
    instead of slicing each, `fold_context` over `context`. `context_by` is how attention sees the keys of other chips
    of `context`: by gathering them (gather), ring attention (ring), or exchanging parts of the sequence for heads
    (ulysses).
    """
    tensor, batch = ("tensor",), ("data", "fsdp", "expert")
    trades = context_by == "ulysses"
    # experts mix nothing along the sequence, so their group may take any axis that splits tokens (MoE parallel folding)
    experts: Axes = ("expert",)
    if fold_context:
        experts += ("context",)
    if folded:
        experts += tensor
    return Rules(
        batch=batch,
        routed_batch=("data", "fsdp"),
        tokens=("context",),
        # norms and residuals have no dim that tensor parallelism splits, so `tensor` may take their tokens
        spread=tensor if sequence else (),
        routed_spread=tensor if sequence or folded else (),
        heads=tensor,
        sliced=() if folded else tensor,
        picks=("expert",),
        dealt=experts,
        width=(),
        keys=("context",),
        attend_batch=batch,
        attend_tokens=() if trades else ("context",),
        attend_heads=("tensor", "context") if trades else tensor,
        attend_keys=(),
        cached_keys=("context",),
        exchange=experts,
        state=("fsdp", "expert", "context"),  # not `data`: pure data parallelism keeps whole replicas
        zero=zero,
        ring=context_by == "ring",
    )


@functools.lru_cache(maxsize=16)
def serving_rules(spread: str = "copy", prompt: bool = False, exchange: bool = False) -> Rules:
    """The layouts of a serving plan.

    `spread` is what the chips beyond the KV heads do with the cache: copy it, or split its `batch` or its `sequence`.
    With `prompt` the tokens of prompts are computed (split over `context`), otherwise single tokens of many sequences.
    With `exchange` tokens reach experts by AllToAll, otherwise every chip gathers all tokens.
    """
    # outside of experts and the cache, the three parts of a plan's tensor parallelism act as one
    heads = ("expert", "tensor", "share")
    tokens: Axes = ("context",) if prompt else ()
    share: Axes = ("share",) if spread == "sequence" else ()
    return Rules(
        batch=("data",),
        routed_batch=(),
        tokens=tokens,
        spread=(),
        routed_spread=(),
        heads=heads,
        sliced=("tensor", "share"),
        picks=("data", "expert"),
        dealt=("data", "expert"),
        width=("width",),
        keys=(),
        attend_batch=("data", "share") if spread == "batch" else ("data",),
        attend_tokens=tokens,
        attend_heads=heads if spread == "copy" else ("expert", "tensor"),
        attend_keys=share if prompt else ("context", *share),
        cached_keys=("context", *share),
        exchange=("data",) if exchange else (),
        gathered=() if exchange else ("data",),
        lazy=True,
    )


def undivided(
    rules: Rules, arrays: Iterable[Array], dims: dict[str, int], sizes: dict[str, int]
) -> frozenset[tuple[str, Axes]]:
    """The dims of some arrays (of sizes `dims`), each with the axes (of sizes `sizes`) that the rules may give it and
    that do not divide it."""
    indivisible: set[tuple[str, Axes]] = set()
    for name, axes in pairs(rules, arrays):
        shards = math.prod(sizes.get(axis, 1) for axis in axes)
        if name in dims and dims[name] % shards:
            indivisible.add((name, axes))
    return frozenset(indivisible)


def pairs(rules: Rules, arrays: Iterable[Array]) -> list[tuple[str, Axes]]:
    """Every dim of some arrays with all the axes that the rules may give it."""
    unrestricted = replace(rules, undivided=frozenset())
    possible: dict[tuple[str, Axes], None] = {}
    for array in arrays:
        if is_weight(array):
            layouts = [unrestricted.used(array), unrestricted.optimizer_state(array)]
        else:
            layouts = [unrestricted.activation(array), unrestricted.attending(array), unrestricted.cached(array)]
        for dim in itertools.chain.from_iterable(layout.dims for layout in layouts):
            for count in range(1, len(dim.axes) + 1):  # an axis may be dropped from the minor end
                possible[dim.name, dim.axes[:count]] = None
    return list(possible)
