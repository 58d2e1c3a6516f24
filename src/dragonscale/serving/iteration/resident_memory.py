"""What lies in a chip's memory while a model is served: a line for each weight, each cached tensor and each part of the
workspace.

Bytes are those of the fullest chip, as numbers, arrays (many plans) or symbols.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy

from dragonscale.models.count import parameters, weight_size
from dragonscale.models.program import Op, Section
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, maximum, minimum, product, where
from dragonscale.physics.sharding.layout import local_size
from dragonscale.plan.ledger import HeldLine
from dragonscale.serving.engine.formats import TensorPlace, weight_bytes
from dragonscale.serving.iteration.balance import expert_slots
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.expert_layout import EXPERTS, expert_layout, stored_over_plain
from dragonscale.serving.iteration.host_weights import host_share

ENDS = ("embed", "head")
"""Sections before the first layer and after the last."""


def weight_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """Weights on one chip.

    A pipeline's layers are dealt out evenly, with the head beside the last ones. A weight that layers share is stored
    once. A vision tower lies beside them, even if nobody sends pictures.
    """
    rules, mesh = deployment.rules(prompt=False), deployment.mesh
    redundant = deployment.engine.experts.redundant if deployment.exchanges else 0
    layout = expert_layout(deployment) if deployment.mixed else None
    shared: set[str] = set()
    for section in deployment.sections:
        layers = 1 if section.name in ENDS else section.repeat / deployment.plan.pipe
        for op in section.ops:
            for weight in op.weights:
                copies = layers
                if weight.name in section.shared:
                    if weight.name in shared:
                        continue
                    shared.add(weight.name)
                    copies = 1
                ways: Number = 1.0  # that the weight is split
                local = dict[str, Number]()
                for dim in rules.used(weight).dims:
                    size = section.dims[dim.name]
                    shards = mesh.size(*dim.axes)
                    slots = size
                    if dim.name == "e":
                        slots = expert_slots(size, shards, redundant)
                    local[dim.name] = local_size(dim.name, slots, shards)
                    ways = ways * (size / local[dim.name])
                place = TensorPlace(op.part, weight.name, section.dims, deployment.layers, deployment.tied)
                stored = weight_size(section, weight) / ways * weight_bytes(deployment.plan, place) * copies
                stored = stored * (1 - host_share(deployment.engine.offload, section.name, op.part, deployment.layers))
                if layout is not None and op.part == EXPERTS and {"d", "f"} <= local.keys():
                    # gate and up lie one below the other, so their rows are padded together
                    is_up = op.output is not None and "f" in op.output.names
                    rows = 2 * local["f"] if is_up else local["d"]
                    stored = stored * stored_over_plain(layout, local["d"], local["f"], rows)
                yield HeldLine("weights", weight.name, stored, section=section.name)
    tower = [section for section in deployment.model.extras if section.name.startswith("vision.")]
    if tower:
        # 16 bits also in checkpoints of 8 and 4 bits
        tower_bytes = sum(parameters(tower).values()) * 2 / mesh.size("tensor")
        yield HeldLine("weights", "vision tower", tower_bytes, section="vision")


def cache_lines(deployment: Deployment, tokens: Number) -> Iterator[HeldLine]:
    """The cache of one sequence of `tokens` on one chip, averaged over the data ranks that sequences are dealt out
    to."""
    for section in deployment.sections:
        for op in section.ops:
            if op.function != "cache":
                continue
            for array in op.inputs:
                cached = _cached_bytes(deployment, section, op, array, tokens)
                yield HeldLine("KV cache", array.name, cached, section=section.name)


def _cached_bytes(deployment: Deployment, section: Section, op: Op, array: Array, tokens: Number) -> Number:
    """Bytes of one cached tensor of a section on one chip, all its layers together."""
    mesh, kv, engine = deployment.mesh, deployment.plan.kv, deployment.engine
    # positions: s of a window, chunk or everything, m of compressed keys
    window = section.span if section.span is not None else section.chunk
    keys = tokens
    if window is not None and not engine.memory.whole_windows:
        keys = minimum(tokens, window)
    compress = section.compress or 1
    if engine.memory.even_pages and section.compress:
        compress = min(other.compress for other in deployment.sections if other.compress)
    compressed = tokens / compress
    sizes: dict[str, Number] = {**section.dims, "s": keys, "m": compressed}
    layout = deployment.rules(prompt=False).cached(array)
    ways = {dim.name: mesh.size(*dim.axes) for dim in layout.dims}
    if "k" in ways and engine.program.divided and deployment.plan.spread == "copy":
        sizes["k"], ways["k"] = _local_kv_heads(deployment, section, ways["k"]), 1
    elements: Number = 1
    for name in array.names:
        if name in ("s", "m"):
            elements = elements * (sizes[name] / ways[name])
        elif name != "b":
            elements = elements * local_size(name, sizes[name], ways[name])
    # indexers cache in fp8 where the cache has 8 bits
    dtype = "fp8" if op.part == "indexer" and dtype_bytes(kv) == 1 else kv
    element_bytes: Number = dtype_bytes(array.dtype or dtype)
    last = array.names[-1]
    if element_bytes == 1 and last in ("h", "g", "c"):
        # one scale for each cached vector; the rotary part of a latent is under the latent's scale
        element_bytes = element_bytes + engine.memory.scale_bytes / local_size(last, sizes[last], ways[last])
    layers = section.repeat / deployment.plan.pipe
    return elements / ways["b"] * element_bytes * layers


def _local_kv_heads(deployment: Deployment, section: Section, ways: Number) -> Number:
    """KV heads that a chip of a compiled program stores: those that its query heads use.

    All of them if the query heads do not divide over the chips; if a chip's query heads lie across groups, one for each
    query head.
    """
    dims, mesh = section.dims, deployment.mesh
    kv_heads, chips = dims["k"], int(numpy.ravel(ways)[0])  # plans that are judged together are split alike
    if dims["n"] % chips:
        query = next(op.inputs[0] for op in section.ops if op.function == "attend")
        chips = int(numpy.ravel(mesh.size(*deployment.rules(False, section).attending(query).dim("n").axes))[0])
    if kv_heads % chips == 0:
        return kv_heads / chips
    local_heads, group = dims["n"] // chips, dims["n"] // kv_heads
    is_across_groups = local_heads % group and group % local_heads
    return local_heads if is_across_groups else max(1, local_heads // group)


def workspace_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """Activations of a data rank's largest iteration: residuals, the widest hidden layer, and its sequences' logits.

    If the engine samples after the layers, only the larger of both counts.
    """
    layers = list(_layer_lines(deployment))
    sampling = list(_sampling_lines(deployment))
    if not deployment.engine.memory.sampled_apart:
        yield from (*layers, *sampling)
        return
    layers_are_larger = bytes_of(iter(layers)) >= bytes_of(iter(sampling))
    if not numpy.ndim(layers_are_larger):
        yield from layers if layers_are_larger else sampling
        return
    # of many plans at once each line counts where its side is the larger
    for line in layers:
        yield replace(line, bytes=where(layers_are_larger, line.bytes, 0.0))
    for line in sampling:
        yield replace(line, bytes=where(layers_are_larger, 0.0, line.bytes))


def _sampling_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """The logits of an iteration's sequences; if sampling comes after the layers, also the hidden states before the
    head."""
    memory, limits = deployment.engine.memory, deployment.engine.scheduling
    head = deployment.sections[-1].dims
    rows = min(limits.max_sequences, limits.max_tokens)
    if memory.sampled_apart:
        yield HeldLine("workspace", "hidden states", limits.max_tokens * head["d"] * 2, "step", "step")
    yield HeldLine("workspace", "logits", rows * head["v"] * memory.logit_bytes, "step", "step")


def _layer_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """Residuals, the widest hidden layer and the rows of experts."""
    mesh, limits = deployment.mesh, deployment.engine.scheduling
    tokens = deployment.engine.memory.workspace_tokens or limits.max_tokens
    widths: list[Number] = []  # elements of each matmul's output for one token
    for section in deployment.sections:
        for op in section.ops:
            if section.name in ENDS or op.function != "einsum" or op.output is None:
                continue
            if not {"s", "m"} & set(op.output.names):
                widths.append(product(section.dims[name] for name in op.output.names if name not in ("b", "t")))
    head = deployment.sections[-1].dims
    # four residual streams and three hidden layers (gate, up, their product) in 16 bits
    yield HeldLine("workspace", "residuals", tokens * 4 * head["d"] * 2, "step", "step")
    hidden = tokens * 3 * maximum(*widths) / mesh.size("expert", "tensor", "share") * 2
    yield HeldLine("workspace", "hidden", hidden, "step", "step")
    moe_dims = next((section.dims for section in deployment.sections if "e" in section.dims), None)
    if deployment.engine.memory.expert_rows and moe_dims is not None and not deployment.exchanges:
        width, inner = moe_dims["d"], moe_dims["f"] / mesh.size("tensor", "share")
        # Each row in 16 bits, in turn before and after the experts, and in 8 or 16 bits between them, with its gate.
        row_bytes = moe_dims["x"] * (maximum(2 * width, inner) + maximum(4 * inner, 2 * width)) + 4 * width
        yield HeldLine("workspace", "experts", limits.max_tokens * mesh.size("data") * row_bytes, "step", "step")


def bytes_of(lines: Iterator[HeldLine]) -> Number:
    """The sum of the bytes of some lines."""
    return sum((line.bytes for line in lines), 0.0)
