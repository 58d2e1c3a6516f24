"""Weights as a served model reads them: a dict for each layer, in the order of the layers, on the plan's mesh.

Three things are done once, when weights are loaded, so that no step copies a weight. Matmuls that read the same tensor
have their weights side by side in one array (`Wq+Wk+Wv`): XLA would join them by copying, at every step. Where there
are fewer KV heads than chips, each chip has the one that it uses. And with int8 weights the matrices of layers are
rounded, with a scale for each output channel; embeddings, heads, routers and vectors stay as they are, as planned.
"""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.models.latent import absorbed
from dragonscale.models.lora import PART as ADAPTERS
from dragonscale.models.program import Op, Program, Section
from dragonscale.physics.notation import Array
from dragonscale.runtime.lines import PassSetting, SectionPass
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.parameters import Tree, WeightReader, weights_of
from dragonscale.runtime.place import Place
from dragonscale.runtime.quantized import Quantized, quantized
from dragonscale.serving.engine.formats import WIDE_PARTS

READERS = 4
"""Layers that are loaded at once."""


def reader_of(params: Tree) -> WeightReader:
    """Weights from a tree whose layers are stacked."""

    def read(section: str, name: str, layer: int) -> Any:
        value = params[section][name]
        return value if section in ("embed", "head") else value[layer]

    return read


def served(program: Program) -> dict[str, Section]:
    """The sections as they are served, latent attention in its absorbed form."""
    return {section.name: absorbed(section) for section in program.sections}


def joined_names(section: Section) -> list[tuple[str, ...]]:
    """The weights that are stored side by side: those of matmuls that read the same tensor, of one part of the block.

    >>> from dragonscale.models import load_model
    >>> joined_names(load_model("llama3-8b").program().sections[1])
    [('Wq', 'Wk', 'Wv'), ('Wu', 'Wg')]
    """
    groups: dict[tuple[str, str, int], list[str]] = {}
    made: dict[str, int] = {}
    for op in section.ops:
        if _joins(op):
            key = (op.part, op.inputs[0].name, made.get(op.inputs[0].name, 0))
            groups.setdefault(key, []).append(op.weights[0].name)
        if op.output is not None:
            made[op.output.name] = made.get(op.output.name, 0) + 1
    return [tuple(names) for names in groups.values() if len(names) > 1]


def _joins(op: Op) -> bool:
    """Whether a line is a matmul [b, t, d] · [d, …], or of experts [b, t, x, d] · [e, d, f]."""
    if op.function != "einsum" or len(op.inputs) != 1 or len(op.weights) != 1 or op.part in WIDE_PARTS:
        return False
    weight, x = op.weights[0], op.inputs[0]
    dealt = [dim.select for dim in weight.dims if dim.select]
    summed = weight.names[len(dealt)]
    return x.names == ("b", "t", *dealt, summed) and (not dealt or summed == "d")


def channels(section: Section, array: Array) -> tuple[str, ...] | None:
    """The dims of a weight's scales, in the order of the output's; None for a weight that stays wide."""
    for op in section.ops:
        if (
            op.function == "einsum"
            and array.name in (each.name for each in op.weights)
            and op.part not in (*WIDE_PARTS, ADAPTERS)
        ):
            assert op.output is not None
            dealt = tuple(dim.name for dim in array.dims if dim.select)
            return (*dealt, *(name for name in op.output.names if name in array.names and name not in dealt))
    return None


@dataclass(frozen=True)
class WeightPlacement:
    """How a program's weights are put on a mesh in `dtype`, those of matmuls in int8 where `narrow`."""

    program: Program
    place: Place
    mesh: Mesh
    dtype: Any = jnp.bfloat16
    narrow: bool = False

    def put(self, read: WeightReader) -> dict[str, Any]:
        """The weights on their devices: those of the ends, and of each layer. Threads read a few layers ahead and turn
        their matrices round; packing stays in one thread, as programs with collectives must start in one order on all
        devices."""
        packers = {name: self._packer(section)[0] for name, section in served(self.program).items()}

        def raw(name: str, at: int = 0) -> Any:
            shapes, sharded = self._raw(name)
            found = {own: read(name, own, at).astype(shape.dtype, copy=False) for own, shape in shapes.items()}
            return jax.device_put(found, sharded)

        order, layers = self.program.order, []
        ahead: deque[Any] = deque()
        with ThreadPoolExecutor(READERS) as pool:
            for at, name in enumerate(order):
                ahead.append(pool.submit(raw, name, order[:at].count(name)))
                if len(ahead) > READERS:
                    layers.append(packers[order[len(layers)]](ahead.popleft().result()))
            while ahead:
                layers.append(packers[order[len(layers)]](ahead.popleft().result()))
        ends = {name: packers[name](raw(name)) for name in ("embed", "head")}
        return {"layers": layers, **ends}

    def packed(self, params: Tree) -> dict[str, Any]:
        """What `put` gives, of a tree on the same devices: a function that is to be compiled whole."""
        packers = {name: self._packer(section)[0] for name, section in served(self.program).items()}
        read, order = reader_of(params), self.program.order

        def one(name: str, at: int = 0) -> Any:
            return packers[name]({own: read(name, own, at).astype(self.dtype) for own in self._raw(name)[0]})

        layers = [one(name, order[:at].count(name)) for at, name in enumerate(order)]
        return {"layers": layers, **{name: one(name) for name in ("embed", "head")}}

    def abstract(self) -> dict[str, Any]:
        """Shapes and shardings of what `put` gives."""

        def shapes(name: str) -> dict[str, Any]:
            pack, specs = self._packer(served(self.program)[name])

            def sharded(shape: Any, spec: PartitionSpec) -> Any:
                return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=NamedSharding(self.mesh, spec))

            return jax.tree.map(sharded, jax.eval_shape(pack, self._raw(name)[0]), specs)

        kinds = {name: shapes(name) for name in {*self.program.order, "embed", "head"}}
        return {"embed": kinds["embed"], "layers": [kinds[name] for name in self.program.order], "head": kinds["head"]}

    def _raw(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Shapes of a layer's weights as a checkpoint has them, and how they are spread over the mesh before they are
        packed."""
        section = served(self.program)[name]
        shapes, spread = {}, {}
        for own, weight in weights_of(self.program)[name].items():
            shape = weight.shape[1:] if weight.stacked else weight.shape
            spread[own] = NamedSharding(self.mesh, self._spec(section, weight.array))
            shapes[own] = jax.ShapeDtypeStruct(shape, self.dtype, sharding=spread[own])
        return shapes, spread

    def _spec(
        self, section: Section, array: Array, names: tuple[str, ...] | None = None, packed: bool = False
    ) -> PartitionSpec:
        laid = self.place.fit(self.place.at_rest(array), section.dims)
        own = {dim.name: dim.axes for dim in laid.dims}
        if packed and "k" in own and (copies := self.place.copied("k", section.dims)):
            own["k"] = copies
        return PartitionSpec(*(own[name] or None for name in names or array.names))

    def _packer(self, section: Section) -> tuple[Any, dict[str, Any]]:
        """A function of a layer's weights as a checkpoint has them, and how what it makes is spread over the mesh."""
        arrays = {name: weight.array for name, weight in weights_of(self.program)[section.name].items()}
        groups = [group for group in joined_names(section) if set(group) <= set(arrays)]
        scaled = {name: found for name, array in arrays.items() if self.narrow and (found := channels(section, array))}
        setting = PassSetting(Numerics(), place=self.place)

        def dealt(group: tuple[str, ...]) -> bool:
            return any(dim.select for dim in arrays[group[0]].dims)

        def rounded(name: str, value: jax.Array) -> Any:
            if name not in scaled:
                return value
            names = arrays[name].names
            whole, scale = quantized(value, tuple(at for at, dim in enumerate(names) if dim not in scaled[name]))
            kept = [dim for dim in names if dim in scaled[name]]
            scale = scale.reshape([size for size, dim in zip(value.shape, names, strict=True) if dim in kept])
            return Quantized(whole, scale.transpose([kept.index(dim) for dim in scaled[name]]))

        def local(weights: dict[str, Any]) -> dict[str, Any]:
            run = SectionPass(section, setting, jnp.zeros((1, 1), jnp.int32), weights)
            mine = {}
            for name, value in weights.items():
                own = arrays[name].names
                mine[name] = (
                    Quantized(run.own_heads(value.values, own), run.own_heads(value.scale, scaled[name]))
                    if isinstance(value, Quantized)
                    else run.own_heads(value, own)
                )
            for group in groups:
                mine["+".join(group)] = _side_by_side([mine.pop(name) for name in group], dealt(group))
            return mine

        def specs(packed: bool) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, array in arrays.items():
                spec = self._spec(section, array, packed=packed)
                if name in scaled:
                    spec = Quantized(spec, self._spec(section, array, scaled[name], packed))  # pyright: ignore[reportArgumentType]
                found[name] = spec
            for group in groups if packed else ():
                members = [found.pop(name) for name in group]
                if dealt(group):
                    found["+".join(group)] = members[0]
                    continue
                axes = max((_axes(member) for member in members), key=len) or None
                wide, long = PartitionSpec(None, axes), PartitionSpec(axes)
                found["+".join(group)] = Quantized(wide, long) if group[0] in scaled else wide  # pyright: ignore[reportArgumentType]
            return found

        mapped = jax.shard_map(local, mesh=self.mesh, in_specs=(specs(False),), out_specs=specs(True), check_vma=False)
        pack = jax.jit(lambda weights: mapped({name: rounded(name, value) for name, value in weights.items()}))
        return pack, specs(True)


def _axes(spec: Any) -> tuple[str, ...]:
    """The mesh axes that split a weight."""
    found = spec.values if isinstance(spec, Quantized) else spec
    return tuple(axis for part in found if part for axis in ((part,) if isinstance(part, str) else part))


def _side_by_side(members: list[Any], dealt: bool) -> Any:
    """Weights [d, …] as one [d, m]; those of experts (`dealt`) [e, d, f] as one [e, d, m]."""
    if isinstance(members[0], Quantized):
        values, scales = ([getattr(each, name) for each in members] for name in ("values", "scale"))
        return Quantized(_side_by_side(values, dealt), _scales(scales, dealt))
    flat = members if dealt else [each.reshape(each.shape[0], -1) for each in members]
    return jnp.concatenate(flat, -1)


def _scales(members: list[jax.Array], dealt: bool) -> jax.Array:
    return jnp.concatenate(members if dealt else [each.reshape(-1) for each in members], -1)
