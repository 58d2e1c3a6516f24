"""What a pass through a section has at hand: weights, tensors and how each of them lies.

Each chip runs the program on its own blocks, inside `jax.shard_map` where there are several. The place
(`runtime.place`) says in which layout a line wants its operands and where its result rests; tensors are brought there
as the planner's reading does it. On one chip nothing moves.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from dragonscale.models.program import Op, Section
from dragonscale.physics.notation import Array
from dragonscale.runtime import experts
from dragonscale.runtime.attention import Scoring
from dragonscale.runtime.expert_exchange import Mixing, Return
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.packed import Packed
from dragonscale.runtime.place import WHOLE, Place
from dragonscale.runtime.quantized import Product, Quantized

Tensors = dict[str, Any]
Note = Callable[[jax.Array, str], jax.Array]


@dataclass(frozen=True)
class PassSetting:
    """What all passes of a model share: its arithmetic, what it computes in (None: in the weights' own type), where
    things lie, how tokens reach experts, a function that marks each tensor of the program by its name (which remat
    policies go by), one that computes some einsums of an input and a weight better than XLA (None of the others), what
    adapters add is multiplied by, and, where documents are kept apart, the position at which that of each token of this
    chip begins [b, t]. `balance` is what a loss that balances experts weighs beside that of one token; where routers
    are `watched`, passes tell the load of each expert. With `fp8` the matmuls of layers are `runtime.narrow`'s.
    `fused` computes some lines of a pass better than XLA, and says whether it did."""

    numerics: Numerics
    dtype: Any = None
    place: Place = WHOLE
    mixing: Mixing = field(default_factory=Mixing)
    note: Note = lambda value, _: value
    multiply: Callable[[str, jax.Array, jax.Array | Quantized], Product | None] = lambda *_: None
    adapters: float = 1.0
    begins: jax.Array | None = None
    balance: float = 0.0
    watched: bool = False
    fp8: bool = False
    fused: Callable[[Op, Any], bool] = lambda *_: False


class LayerCache(Protocol):
    """What a layer has cached while it decodes. `write` takes what is new of an array and answers with what the lines
    after it see under its name; `attend` computes attention of the new tokens' queries [b, t, n, h], given what was
    written or answered."""

    def write(self, name: str, value: jax.Array) -> jax.Array: ...

    def attend(self, query: jax.Array, key: jax.Array, value: jax.Array, how: Scoring) -> jax.Array: ...


@dataclass
class Routed:
    """Tokens at their experts: what was chosen, the rows as they arrived, the way home, the rows of all slices, and the
    axes over which results are partial sums."""

    chosen: experts.ExpertChoice
    rows: experts.ExpertRows
    way: Return | None
    wide: experts.ExpertRows | None = None
    partial: tuple[str, ...] = ()


@dataclass
class SectionPass:
    """What a pass through a section needs beside its weights. `positions` are those of all tokens, [b or 1, t];
    `stored` is the cache of this layer while decoding; `kept` collects what the layer wants cached. `layouts` says how
    each tensor lies, `forms` holds those that were brought elsewhere for a line, `products` those of joined weights;
    `load` is how many of this chip's tokens each expert was chosen by, where that is watched; `parts` of a tensor or a
    product what it is the sum of, `added` what was last added up to a tensor: that to which, and the parts of what;
    where several adapters are served, `adapters` [1, t, rank] are those of each token."""

    section: Section
    setting: PassSetting
    positions: jax.Array
    weights: Tensors
    tokens: jax.Array | None = None
    stored: LayerCache | None = None
    kept: Tensors = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)
    layouts: dict[str, Array] = field(default_factory=dict)
    forms: dict[tuple[str, Array], jax.Array] = field(default_factory=dict)
    routed: Routed | None = None
    products: Tensors = field(default_factory=dict)
    parts: dict[str, jax.Array] = field(default_factory=dict)
    added: dict[str, tuple[jax.Array, jax.Array]] = field(default_factory=dict)
    load: jax.Array | None = None
    adapters: jax.Array | None = None

    def __post_init__(self) -> None:
        self.numerics, self.place = self.setting.numerics, self.setting.place

    def at_rest(self, array: Array) -> Array:
        """How a weight, or what comes from elsewhere, lies between the lines that use it."""
        return self.place.fit(self.place.at_rest(array), self.section.dims)

    def held(self, array: Array) -> Array:
        """How a tensor lies, in the names that this line gives its dims; what comes from elsewhere lies at rest."""
        known = self.layouts.get(array.name)
        if known is None:
            return self.at_rest(array)
        layout = {dim.name: old.axes for dim, old in zip(array.dims, known.dims, strict=True)}
        return array.with_layout(layout, known.partial)

    def operand(self, array: Array, op: Op) -> Any:
        """A tensor as a line wants it; each form is made once."""
        value = self.tensors[array.name]
        if not isinstance(value, jax.Array):
            return value
        held, target = self.held(array), self.wanted(array, op)
        key = (array.name, target.with_layout({dim.name: dim.axes for dim in target.dims}, target.partial))
        if key not in self.forms:
            self.forms[key] = self.place.bring(value, held, target)
        return self.forms[key]

    def wanted(self, array: Array, op: Op) -> Array:
        """How a line has a tensor before it."""
        return self.place.for_line(array, self.held(array), op, self.section.dims)

    def weight(self, array: Array, op: Op, dtype: Any = None) -> Any:
        """A weight as it is used: cast and cut to this chip's own KV heads while it is small, then gathered (and one in
        few bits widened). One in int8 that is served lies as it is used, and is for the lines that multiply with it to
        scale."""
        value = self.weights[array.name]
        if isinstance(value, Quantized):
            return value
        at, use = self.at_rest(array), self.used(array, op)
        if isinstance(value, Packed):
            return value.map(lambda one: self.place.bring(self.own_heads(one, array.names), at, use)).widened(dtype)
        value = value if dtype is None else value.astype(dtype)
        return self.place.bring(self.own_heads(value, array.names), at, use)

    def own_heads(self, value: jax.Array, names: tuple[str, ...]) -> jax.Array:
        """Of a weight with all KV heads, of which there are fewer than chips, the one that this chip uses."""
        axes = self.place.copied("k", self.section.dims) if "k" in names else ()
        if not axes:
            return value
        at = names.index("k")
        mine = self.place.index(axes) * value.shape[at] // self.place.ways(axes)
        return jax.lax.dynamic_slice_in_dim(value, mine, 1, at)

    def local_size(self, name: str, axes: tuple[str, ...]) -> int:
        """Entries of a weight's dim on this chip."""
        if name == "k" and self.place.copied("k", self.section.dims):
            return 1
        return self.section.dims[name] // self.place.ways(axes)

    def joined(self, op: Op) -> str | None:
        """The name of the stored weight that this line's is a part of: `Wq+Wk+Wv`, side by side along
        what they make."""
        own = op.weights[0].name if op.weights else ""
        return None if own in self.weights else next((key for key in self.weights if own in key.split("+")), None)

    def used(self, weight: Array, op: Op) -> Array:
        """How a line has a weight before it."""
        return self.place.for_line(weight, self.at_rest(weight), op, self.section.dims)

    def put(self, op: Op, value: Any, made: Array | None = None) -> None:
        """A line's result, brought to where it rests."""
        array = op.output
        assert array is not None
        if isinstance(value, jax.Array):
            made = self.at_rest(array) if made is None else made
            rest = self.place.after_line(made, self.section.dims)
            value = self.setting.note(self.place.bring(value, made, rest), array.name)
            self.layouts[array.name] = rest
        elif isinstance(value, experts.ExpertRows):
            value = value.having(self.setting.note(value.values, array.name))
        self.renew(array.name, value)

    def renew(self, name: str, value: Any) -> None:
        """A tensor that is made anew: nothing that was known of it holds."""
        self.tensors[name] = value
        self.forms = {key: form for key, form in self.forms.items() if key[0] != name}
        for known in (self.parts, self.added):
            known.pop(name, None)

    def positions_of(self, array: Array) -> jax.Array:
        """Of the tokens that this chip has of a tensor [b, t, …]."""
        return self.place.part(self.positions, 1, array.dims[1].axes)

    def begins_of(self, array: Array) -> jax.Array:
        """Where the documents of the same tokens begin; 0 where they are not kept apart."""
        rest = tuple(axis for axis in array.dims[1].axes if axis != "context")
        return (
            jnp.zeros((1, 1), jnp.int32)
            if self.setting.begins is None
            else self.place.part(self.setting.begins, 1, rest)
        )
