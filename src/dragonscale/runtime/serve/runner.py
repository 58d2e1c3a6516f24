"""The model on its devices: compiled steps, and the paged cache that they write.

Every shape of a step is compiled before the first request; `run` calls what is there and nothing else, so that nothing
compiles under load. The cache is given to each step and comes back written, in place. Programs that were compiled once
are found again in the user's cache folder (`DRAGONSCALE_CACHE`, or `~/.cache/dragonscale`;
`JAX_ENABLE_COMPILATION_CACHE=false` keeps none).
"""

from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dragonscale.errors import InputError
from dragonscale.listener import Listener
from dragonscale.models.program import Program
from dragonscale.runtime.decode import check, serving_mesh
from dragonscale.runtime.expert_exchange import Mixing
from dragonscale.runtime.lines import PassSetting
from dragonscale.runtime.numerics import Numerics
from dragonscale.runtime.packed_weights import WeightPlacement, reader_of, served
from dragonscale.runtime.place import exchanges, serving_place
from dragonscale.runtime.serve.paged_attention import PagedKeys
from dragonscale.runtime.serve.step_program import cached_sizes, packed_ints, packed_size, run_step, unpacked
from dragonscale.runtime.serve.steps import EngineLimits, StepBatch, StepShape, shapes_for
from dragonscale.serving.engine.plan import ServingPlan

MOVED = 32
"""Pages that are read or written from outside at once."""

PROMPT_OPTIONS = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_cublaslt": True,
    "xla_gpu_graph_min_graph_size": 1 << 20,
}
"""On GPUs, for steps with prompts: cuBLASLt adds the residual stream within its matmuls, and has more of them to choose
from; weights in int8 are widened apart, where a kernel that did it for every block of tokens would lose more."""


class ModelRunner:
    """A model ready to compute steps. `weights` are a reader of a checkpoint's, a tree as `parameters.initialise` gives
    it, or what `WeightPlacement.put` made of either; with None the runner can only compile. `dtype` is what it computes
    in; `plan.kv` and `plan.weights` say what is in int8."""

    def __init__(
        self,
        program: Program,
        numerics: Numerics,
        plan: ServingPlan,
        devices: list[Any] | Mesh,
        weights: Any,
        limits: EngineLimits,
        dtype: Any = jnp.bfloat16,
    ) -> None:
        check(plan, narrow=("weights", "kv"))
        if limits.ranks != plan.data:
            raise InputError(f"The engine has {limits.ranks} ranks and the plan data={plan.data}; they are the same.")
        self.program, self.limits, self.plan, self.dtype = program, limits, plan, dtype
        self.mesh = devices if isinstance(devices, Mesh) else serving_mesh(plan, program, devices)
        place = serving_place(plan, program, prompt=False, exchange=exchanges(plan, program))
        self.setting = PassSetting(numerics, dtype, place)
        self.platform = self.mesh.devices.flat[0].platform
        if self.platform in ("gpu", "cuda"):
            from dragonscale.runtime.serve.gpu_matmul import MOST, few_tokens  # Pallas: others need not load it

            few = MOST if dtype == jnp.bfloat16 else 0  # what the kernels of experts take
            self.setting = replace(self.setting, multiply=few_tokens, mixing=Mixing(few=few))
            if plan.chips == 1:
                from dragonscale.runtime.serve.gpu_fused import fused

                self.setting = replace(self.setting, fused=fused)
        self.by_rank = NamedSharding(self.mesh, PartitionSpec("data"))
        self.placement = WeightPlacement(program, place, self.mesh, dtype, plan.weights == "int8")
        if weights is not None and (callable(weights) or "layers" not in weights):
            weights = self.placement.put(weights if callable(weights) else reader_of(weights))
        self.weights = weights
        self._room = [self._layer_room(name) for name in program.order]
        self._moved = jax.tree.map(self._page_room, self._room)
        self._empty = jax.jit(  # once: `reset` is no time to compile
            lambda: jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), self._room),
            out_shardings=jax.tree.map(lambda each: each.sharding, self._room),
        )
        self.cache: list[PagedKeys] = [] if weights is None else self._empty()
        self.hidden: jax.Array | None = None
        self._compiled: dict[StepShape | str, Any] = {}
        self._alone = Lock()

    def _layer_room(self, name: str) -> PagedKeys:
        """Shapes and shardings of a layer's cache."""
        heads, size, value, axes = cached_sizes(served(self.program)[name], self.setting.place)
        places = self.limits.ranks * self.limits.pages * self.limits.page
        by = NamedSharding(self.mesh, PartitionSpec("data", axes or None))
        narrow = self.plan.kv == "int8"

        def room(*shape: int, dtype: Any) -> Any:
            return jax.ShapeDtypeStruct((places, heads, *shape), dtype, sharding=by)

        dtype, scale = (jnp.int8, room(dtype=jnp.bfloat16)) if narrow else (self.dtype, None)
        values = None if value is None else room(value, dtype=dtype)
        return PagedKeys(room(size, dtype=dtype), values, scale, scale if value is not None else None)

    def _page_room(self, each: Any) -> Any:
        """Of an array of the cache, pages that are read or written at once."""
        sharding = NamedSharding(self.mesh, PartitionSpec("data", None, None, *each.sharding.spec[1:]))
        shape = self.limits.ranks, MOVED, self.limits.page, *each.shape[1:]
        return jax.ShapeDtypeStruct(shape, each.dtype, sharding=sharding)

    def reset(self) -> None:
        """An empty cache in place of one that a failed step may have taken along."""
        self.cache, self.hidden = [], None  # first, so that there is room
        self.cache = self._empty()

    @property
    def page_bytes(self) -> int:
        """Bytes of a page over all layers on one chip, scales included."""
        arrays = jax.tree.leaves(self._room)
        each = (numpy.prod(one.sharding.shard_shape(one.shape)) * one.dtype.itemsize for one in arrays)
        return int(sum(each)) // self.limits.pages

    def program_of(self, shape: StepShape) -> tuple[Any, tuple[Any, ...]]:
        """A step's function for the whole mesh, and the shapes of what it takes."""
        limits, platform = self.limits, self.platform
        weights = self.placement.abstract() if self.weights is None else jax.tree.map(_shape_of, self.weights)
        ints = jax.ShapeDtypeStruct((limits.ranks, packed_size(shape, limits)), jnp.int32, sharding=self.by_rank)
        last = jax.ShapeDtypeStruct((limits.ranks, limits.sequences + 1), jnp.int32, sharding=self.by_rank)
        arguments = (weights, self._room, ints, last)
        specs = jax.tree.map(lambda each: each.sharding.spec, arguments)

        def local(weights: Any, cache: list[PagedKeys], ints: jax.Array, last: jax.Array) -> Any:
            rows = unpacked(ints[0], shape, limits, platform)
            return run_step(weights, cache, rows, last[0], self.program, self.setting)

        out = (PartitionSpec("data"), PartitionSpec("data"), specs[1])
        mapped = jax.shard_map(local, mesh=self.mesh, in_specs=specs, out_specs=out, check_vma=False)
        return jax.jit(mapped, donate_argnums=1), arguments

    def compile(
        self,
        shapes: list[StepShape] | None = None,
        listener: Listener | None = None,
        threads: int = 4,
        moves: bool = True,
    ) -> None:
        """Compile steps of these shapes (all that the limits have) and, with `moves`, how pages are read and written,
        several at once."""
        wanted: list[StepShape | str] = [*(shapes_for(self.limits) if shapes is None else shapes)]
        wanted += ["read", "write"] if moves else []
        missing = [each for each in dict.fromkeys(wanted) if each not in self._compiled]
        listener = listener or Listener()
        with ThreadPoolExecutor(threads) as pool:
            found = {pool.submit(self._compile_one, each): each for each in missing}
            for done, future in enumerate(as_completed(found), 1):
                self._compiled[found[future]] = future.result()
                listener.step(done, len(missing))

    def _compile_one(self, which: StepShape | str) -> Any:
        function, arguments = self._mover(which) if isinstance(which, str) else self.program_of(which)
        prompts = isinstance(which, StepShape) and which.tokens > 0
        options = PROMPT_OPTIONS if prompts and self.platform in ("gpu", "cuda") else {}
        lowered = function.lower(*arguments)
        try:
            return lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            if "ptxas" not in str(error):
                raise
            with self._alone:  # several threads that start the assembler at once may fail to
                return lowered.compile(compiler_options=options)

    def run(self, batch: StepBatch, last: jax.Array) -> jax.Array:
        """Logits [R, read, V] in fp32 of a step, on the devices; `hidden` then holds the states [R, read, d] below
        them. `last` [R, slots + 1] are the tokens that slots sampled last."""
        step = self._compiled.get(batch.shape)
        assert step is not None, f"no step was compiled for {batch.shape}"
        logits, self.hidden, self.cache = step(self.weights, self.cache, packed_ints(batch), last)
        return logits

    def _mover(self, which: str) -> tuple[Any, tuple[Any, ...]]:
        """Programs that read pages of every rank, or write them."""
        page = self.limits.page
        numbers = jax.ShapeDtypeStruct((self.limits.ranks, MOVED), jnp.int32, sharding=self.by_rank)

        def read(cache: Any, pages: jax.Array) -> Any:
            return jax.tree.map(lambda each: each.reshape(-1, page, *each.shape[1:])[pages], cache)

        def write(cache: Any, pages: jax.Array, values: Any) -> Any:
            def put(each: jax.Array, new: jax.Array) -> jax.Array:
                return each.reshape(-1, page, *each.shape[1:]).at[pages[0]].set(new[0]).reshape(each.shape)

            return jax.tree.map(put, cache, values)

        whole = (self._room, numbers, self._moved)
        arguments = whole if which == "write" else whole[:2]
        specs = jax.tree.map(lambda each: each.sharding.spec, whole)
        ends = {"read": (read, specs[:2], specs[2]), "write": (write, specs, specs[0])}
        function, given, out = ends[which]
        mapped = jax.shard_map(function, mesh=self.mesh, in_specs=given, out_specs=out, check_vma=False)
        return jax.jit(mapped, donate_argnums=0 if which == "write" else ()), arguments

    def _page_numbers(self, rank: int, pages: list[int]) -> jax.Array:
        """Some pages of one rank; of the others, and to fill up, the one that is nobody's."""
        numbers = numpy.zeros((self.limits.ranks, MOVED), numpy.int32)
        numbers[rank, : len(pages)] = pages
        return jax.device_put(numbers, self.by_rank)

    def read_pages(self, rank: int, pages: list[int]) -> list[numpy.ndarray]:
        """What pages of a rank hold: for each array of the cache [pages, page, heads, …]."""
        parts = []
        for at in range(0, len(pages), MOVED):
            some = pages[at : at + MOVED]
            found = jax.device_get(self._compiled["read"](self.cache, self._page_numbers(rank, some)))
            parts.append([each[rank, : len(some)] for each in jax.tree.leaves(found)])
        return [numpy.concatenate(each) for each in zip(*parts, strict=True)]

    def write_pages(self, rank: int, pages: list[int], arrays: list[numpy.ndarray]) -> None:
        """Put what `read_pages` gave into pages of a rank."""
        for at in range(0, len(pages), MOVED):
            some = pages[at : at + MOVED]

            def filled(shape: Any, array: numpy.ndarray, at: int = at, count: int = len(some)) -> Any:
                whole = numpy.zeros(shape.shape, shape.dtype)
                whole[rank, :count] = array[at : at + count]
                return jax.device_put(whole, shape.sharding)

            leaves, tree = jax.tree.flatten(self._moved)
            values = jax.tree.unflatten(tree, [filled(*both) for both in zip(leaves, arrays, strict=True)])
            self.cache = self._compiled["write"](self.cache, self._page_numbers(rank, some), values)


def _shape_of(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
