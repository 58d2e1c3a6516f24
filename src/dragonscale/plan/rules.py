"""Which mesh axes split which dims: a parallelism scheme, written down once.

`Rules` is a table: the axes that each kind of dim gets. How any weight or activation lies at rest, in which layout a
line is computed, how attention and the experts want their tensors: all of it follows from the table, and from the
layouts every collective (`dragonscale.plan.reader`). Training and serving are two ways to fill it in.

Training (the book's and every large trainer's way): the batch is split over `data`, `fsdp` and `expert`, the sequence
over `context` (and over `tensor` between the blocks, where nothing else is), heads, hidden dims and the vocabulary over
`tensor`, experts over `expert`. A weight's state is split further over every axis that splits the tokens but not this
weight, except `data`.

Serving: weights never move, activations do. What a plan calls `tensor` is three axes, because experts and the cache may
use a part of it each: `expert` deals out experts, `share` is what lies beyond the KV heads, `tensor` is the rest.

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
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from dragonscale.models.program import Op, is_weight
from dragonscale.physics.notation import Array

Axes = tuple[str, ...]
Layout = dict[str, Axes]

TRAINING = ("pipe", "data", "fsdp", "expert", "context", "tensor")
SERVING = ("pipe", "data", "context", "width", "expert", "tensor", "share")
"""The mesh axes, slowest first."""

SPLIT = ("n", "k", "f", "z", "v", "i", "u", "mn", "mk", "f1", "d1", "vl")
"""Dims that tensor parallelism splits: heads of every kind, hidden dims, the vocabulary."""


@dataclass(frozen=True)
class Rules:
    """The mesh axes of each kind of dim. `batch` and `tokens` are those of b and t, `routed_batch` of b on the way to
    experts; `spread` splits t further where no head or hidden dim is split (sequence parallelism), `routed_spread` the
    same on the way to experts. `heads` are those of `SPLIT`, `sliced` of the experts' hidden dims, `picks` of a token's
    experts, `dealt` of the experts themselves, `width` of d. Keys at rest have `keys`; while attention runs,
    `attend_batch`, `attend_tokens`, `attend_heads` and `attend_keys` hold, and in the cache `cached_keys`. `state`
    splits a weight's optimizer state further as far as `zero` (the ZeRO stage) goes. Tokens reach experts over
    `exchange` by AllToAll, or are gathered over `gathered`. With `lazy` a partial sum stays one until a line needs it
    whole. `ring` passes keys and values round instead of gathering them. `sums_everywhere` adds up every gradient over
    all axes that do not split its weight, vectors too. `undivided` are dims with axes by which they do not divide:
    these split nothing."""

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
    found: dict[tuple[str, Array], Array] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Layouts that were asked for before."""

    def activation(self, array: Array) -> Array:
        """How an activation lies between lines. What belongs to experts lies with them."""
        return self._once("activation", self._activation, array)

    def used(self, array: Array) -> Array:
        """How a weight lies while it is used."""
        return self._once("used", self._used, array)

    def optimizer_state(self, array: Array) -> Array:
        """How a weight's optimizer state is stored: along the model's width, which divides by more than a head's size
        does."""
        return self._once("state", self._optimizer_state, array)

    def _once(self, what: str, lay: Callable[[Array], Array], array: Array) -> Array:
        key = (what, array)
        if key not in self.found:
            self.found[key] = lay(array)
        return self.found[key]

    def _activation(self, array: Array) -> Array:
        routed = _routed(array.names)
        hidden = self._hidden(array.names, routed)
        split: Layout = {"b": self.routed_batch if routed else self.batch, "x": self.picks, "d": self.width}
        split |= {"t": self.tokens, "s": () if "t" in array.names else self.keys}
        if hidden:
            split[hidden] = self.sliced if routed else self.heads
        else:
            split["t"] += self.routed_spread if routed else self.spread
        return self.fit(array.with_layout(split))

    def _used(self, array: Array) -> Array:
        return self.fit(array.with_layout(self._split(array)))

    def weight(self, array: Array) -> Array:
        """How a weight is stored between its uses."""
        return self.optimizer_state(array) if self.zero == 3 else self.used(array)

    def _optimizer_state(self, array: Array) -> Array:
        split = self._split(array)
        taken = {axis for axes in split.values() for axis in axes}
        whole = [dim.name for dim in array.dims if dim.name not in split or not split[dim.name]]
        rest = "d" if "d" in whole else next(iter(whole), None)
        if self.zero >= 1 and rest is not None and len(array.dims) > 1:
            split[rest] = tuple(axis for axis in self.state if axis not in taken)
        return self.fit(array.with_layout(split))

    def at_rest(self, array: Array) -> Array:
        """Either kind of array between its uses."""
        return self.weight(array) if is_weight(array) else self.activation(array)

    def computing(self, op: Op) -> Layout:
        """Which index each axis is given to while a line is computed: an axis splits one index of a line at most."""
        names = [name for array in op.arrays for name in array.names]
        routed = "x" in names and any(dim.select for weight in op.weights for dim in weight.dims)
        hidden = self._hidden(names, routed)
        split: Layout = {"b": self.routed_batch if routed else self.batch, "t": self.tokens, "d": self.width}
        if routed:
            split["x"] = self.picks
        if hidden:
            split[hidden] = self.sliced if routed else self.heads
        else:
            split["t"] += self.routed_spread if routed else self.spread
        return {name: fit for name, axes in split.items() if (fit := self._dividing(name, axes))}

    def for_line(self, array: Array, held: Array, op: Op) -> Array:
        """How a line wants an operand that lies as `held` says."""
        if is_weight(array):
            return self.used(array)
        if op.function == "einsum":
            return self.fit(held.with_layout(self.computing(op)))
        if op.function in ("attend", "score"):
            return self.attending(array)
        if op.function == "join" and op.output is not None:
            return self.fit(array.with_layout({dim.name: dim.axes for dim in self.activation(op.output).dims}))
        return held

    def of_line(self, op: Op) -> Array:
        """How an einsum's result lies, partial sums and all."""
        assert op.output is not None
        split = self.computing(op)
        partial = tuple(axis for name in op.einsum.contracted for axis in split.get(name, ()))
        return self.fit(op.output.with_layout(split, partial))

    def looked_up(self, array: Array) -> Array:
        """How rows of a table lie that is split over the vocabulary: each chip finds some of its tokens."""
        return self.fit(array.with_layout({"b": self.batch, "t": self.tokens, "d": self.width}, self.heads))

    def attending(self, array: Array) -> Array:
        """A query, a key, a value or a result while attention runs."""
        split: Layout = {"b": self.attend_batch, "t": self.attend_tokens, "s": self.attend_keys, "m": self.attend_keys}
        heads = [name for name in array.names if name in SPLIT]
        return self.fit(array.with_layout(split | dict.fromkeys(heads, self.attend_heads)))

    @property
    def trades(self) -> bool:
        """Whether attention has whole sequences of some heads in exchange for parts of all of them (Ulysses)."""
        return self.attend_tokens != self.tokens

    def cached(self, array: Array) -> Array:
        """An array of the cache at rest: split along the sequence whatever is computed."""
        laid = self.attending(array)
        split = {dim.name: self.cached_keys if dim.name in ("s", "m") else dim.axes for dim in laid.dims}
        return self.fit(laid.with_layout(split))

    def home(self, routed: Array) -> Array:
        """A tensor on its way to experts or back as it lies with its tokens."""
        laid = {dim.name: dim.axes for dim in routed.dims}
        return routed.with_layout(laid | {"b": self.batch, "x": ()})

    @property
    def beyond(self) -> Axes:
        """Axes over which experts are dealt and tokens are not sent: each chip has all tokens and works for its own
        experts."""
        return tuple(axis for axis in self.dealt if axis not in (*self.exchange, *self.gathered))

    def fit(self, array: Array) -> Array:
        """A layout without the axes by which a dim does not divide."""
        if not self.undivided:
            return array
        layout = {dim.name: self._dividing(dim.name, dim.axes) for dim in array.dims}
        return array.with_layout(layout, array.partial)

    def _dividing(self, name: str, axes: Axes) -> Axes:
        while axes and (name, axes) in self.undivided:
            axes = axes[:-1]
        return axes

    def among(self, axes: Iterable[str]) -> "Rules":
        """The same with some of the axes alone: those of more than one chip."""
        kept = set(axes)
        given = {name: value for name, value in vars(self).items() if isinstance(value, tuple)}
        return replace(self, **{name: tuple(one for one in value if one in kept) for name, value in given.items()})

    def _hidden(self, names: Iterable[str], routed: bool) -> str | None:
        """The dim that tensor parallelism splits, if any."""
        if not (self.sliced if routed else self.heads):
            return None
        return next((name for name in SPLIT if name in names), None)

    def _split(self, array: Array) -> Layout:
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


def _routed(names: Iterable[str]) -> bool:
    return "x" in names and "e" not in names


def training_rules(
    sequence: bool = True, zero: int = 3, folded: bool = True, context_by: str = "gather", fold_context: bool = False
) -> Rules:
    """The layouts of a training plan. `sequence` splits residuals over `tensor` (sequence parallelism); `folded`
    spreads experts over `tensor` too instead of slicing each, `fold_context` over `context`; `context_by` is how
    attention sees the keys of other chips of `context`: gathered, by ring attention, or by trading parts of the
    sequence for heads (ulysses)."""
    tensor, batch = ("tensor",), ("data", "fsdp", "expert")
    trades = context_by == "ulysses"
    # Experts mix nothing along the sequence, so their group may take any axis that splits tokens (MoE parallel
    # folding).
    experts = ("expert", *(("context",) if fold_context else ()), *(tensor if folded else ()))
    return Rules(
        batch=batch,
        routed_batch=("data", "fsdp"),
        tokens=("context",),
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
        state=("fsdp", "expert", "context"),
        zero=zero,
        ring=context_by == "ring",
    )


@functools.lru_cache(maxsize=16)
def serving_rules(spread: str = "copy", prompt: bool = False, exchange: bool = False) -> Rules:
    """The layouts of a serving plan. `spread` says what the chips beyond the KV heads do with the cache (`copy`,
    `batch`, `sequence`); `prompt` whether tokens of prompts are computed (split over `context`), or single tokens of
    many sequences; `exchange` whether tokens travel to experts by AllToAll, or everybody gathers all tokens."""
    heads, share, along = ("expert", "tensor", "share"), ("share",), spread == "sequence"
    return Rules(
        batch=("data",),
        routed_batch=(),
        tokens=("context",) if prompt else (),
        spread=(),
        routed_spread=(),
        heads=heads,
        sliced=("tensor", "share"),
        picks=("data", "expert"),
        dealt=("data", "expert"),
        width=("width",),
        keys=(),
        attend_batch=("data", "share") if spread == "batch" else ("data",),
        attend_tokens=("context",) if prompt else (),
        attend_heads=heads if spread == "copy" else ("expert", "tensor"),
        attend_keys=(() if prompt else ("context",)) + (share if along else ()),
        cached_keys=("context",) + (share if along else ()),
        exchange=("data",) if exchange else (),
        gathered=() if exchange else ("data",),
        lazy=True,
    )


def undivided(
    rules: Rules, arrays: Iterable[Array], dims: dict[str, int], sizes: dict[str, int]
) -> frozenset[tuple[str, Axes]]:
    """The dims of some arrays, with the axes by which they do not divide, under the rules and for the sizes of mesh
    axes."""
    asked = [(name, axes) for name, axes in pairs(rules, arrays) if name in dims]
    return frozenset(
        (name, axes) for name, axes in asked if dims[name] % math.prod(sizes.get(axis, 1) for axis in axes)
    )


def pairs(rules: Rules, arrays: Iterable[Array]) -> list[tuple[str, Axes]]:
    """Every dim with every set of axes that the rules may give it, for some arrays."""
    open_rules = replace(rules, undivided=frozenset())
    found: dict[tuple[str, Axes], None] = {}
    for array in arrays:
        forms = [open_rules.activation(array), open_rules.attending(array), open_rules.cached(array)]
        if is_weight(array):
            forms = [open_rules.used(array), open_rules.optimizer_state(array)]
        for dim in (dim for form in forms for dim in form.dims):
            found |= {(dim.name, dim.axes[:count]): None for count in range(1, len(dim.axes) + 1)}
    return list(found)
