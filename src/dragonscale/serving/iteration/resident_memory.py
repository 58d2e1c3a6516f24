"""What lies in a chip's memory while a model is served: a line for each weight, each cached tensor and each part of the
workspace.

Bytes are those of the busiest chip. Numbers, arrays (many plans) or symbols.
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
from dragonscale.serving.engine.formats import weight_bytes
from dragonscale.serving.iteration.balance import expert_slots
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.expert_layout import EXPERTS, expert_layout, stored_over_plain


def weight_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """Weights; a pipeline's layers are dealt out evenly, the head beside the last ones. What the whole program shares
    is held once. A vision tower lies beside them, also where nobody sends pictures."""
    rules, mesh = deployment.rules(prompt=False), deployment.mesh
    redundant = deployment.engine.experts.redundant if deployment.exchanges else 0
    layout = expert_layout(deployment) if deployment.mixed else None
    seen: set[str] = set()
    for section in deployment.sections:
        ends = section.name in ("embed", "head")
        layers = section.repeat / deployment.plan.pipe if not ends else 1
        for op in section.ops:
            for weight in op.weights:
                held_by = layers
                if weight.name in section.shared:
                    if weight.name in seen:
                        continue
                    seen.add(weight.name)
                    held_by = 1
                ways: Number = 1.0
                local = dict[str, Number]()
                for dim in rules.used(weight).dims:
                    size = section.dims[dim.name]
                    parts = mesh.size(*dim.axes)
                    copied = expert_slots(size, parts, redundant) if dim.name == "e" else size
                    local[dim.name] = local_size(dim.name, copied, parts)
                    ways = ways * (size / local[dim.name])
                held = weight_size(section, weight) / ways * weight_bytes(deployment.plan, op.part) * held_by
                if layout is not None and op.part == EXPERTS and {"d", "f"} <= local.keys():
                    into = op.output is not None and "f" in op.output.names
                    # gate and up lie one below the other, so their rows are filled up together
                    rows = 2 * local["f"] if into else local["d"]
                    held = held * stored_over_plain(layout, local["d"], local["f"], rows)
                yield HeldLine("weights", weight.name, held, section=section.name)
    tower = [section for section in deployment.model.extras if section.name.startswith("vision.")]
    if tower:  # checkpoints in 8 and 4 bits leave it in 16
        held = sum(parameters(tower).values()) * 2 / mesh.size("tensor")
        yield HeldLine("weights", "vision tower", held, section="vision")


def cache_lines(deployment: Deployment, tokens: Number) -> Iterator[HeldLine]:
    """What one sequence of `tokens` keeps on one chip, averaged over the data ranks that sequences are dealt out to."""
    for section in deployment.sections:
        for op in section.ops:
            for array in op.inputs if op.function == "cache" else ():
                held = _cached_bytes(deployment, section, op, array, tokens)
                yield HeldLine("KV cache", array.name, held, section=section.name)


def _cached_bytes(deployment: Deployment, section: Section, op: Op, array: Array, tokens: Number) -> Number:
    mesh, kv = deployment.mesh, deployment.plan.kv
    cap = section.span if section.span is not None else section.chunk
    held = minimum(tokens, cap) if cap is not None and not deployment.engine.memory.whole_windows else tokens
    past = tokens / section.compress if section.compress is not None else tokens
    sizes: dict[str, Number] = {**section.dims, "s": held, "m": past}
    laid = deployment.rules(prompt=False).cached(array)
    ways = {dim.name: mesh.size(*dim.axes) for dim in laid.dims}
    if "k" in ways and deployment.engine.program.divided and deployment.plan.spread == "copy":
        sizes["k"], ways["k"] = _kept_heads(deployment, section, ways["k"]), 1
    elements = product(
        sizes[name] / ways[name] if name in ("s", "m") else local_size(name, sizes[name], ways[name])
        for name in array.names
        if name != "b"
    )
    narrow = "fp8" if op.part == "indexer" and dtype_bytes(kv) == 1 else kv
    each: Number = dtype_bytes(array.dtype or narrow)
    last = array.names[-1]
    if each == 1 and last in ("h", "g", "c"):  # the rotary part of a latent is under the latent's scale
        each = each + deployment.engine.memory.scale_bytes / local_size(last, sizes[last], ways[last])
    layers = section.repeat / deployment.plan.pipe
    return elements / ways["b"] * each * layers


def _kept_heads(deployment: Deployment, section: Section, ways: Number) -> Number:
    """KV heads that a chip of a compiled program keeps: those that its query heads use, and all of them where the query
    heads do not divide over the chips. Where they lie across groups, one for each query head."""
    dims, mesh = section.dims, deployment.mesh
    kept, many = dims["k"], int(numpy.ravel(ways)[0])  # plans that are judged together are split alike
    if dims["n"] % many:
        asked = next(op.inputs[0] for op in section.ops if op.function == "attend")
        many = int(numpy.ravel(mesh.size(*deployment.rules(False, section).attending(asked).dim("n").axes))[0])
    if kept % many == 0:
        return kept / many
    mine, shared = dims["n"] // many, dims["n"] // kept
    return mine if mine % shared and shared % mine else max(1, mine // shared)


def workspace_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """Activations of the largest iteration of a data rank: its residuals, the widest hidden layer and the logits of its
    sequences. Where sampling comes after the layers, the lines are those of the larger of both."""
    layers = list(_layer_lines(deployment))
    sampling = list(_sampling_lines(deployment))
    if not deployment.engine.memory.sampled_apart:
        yield from (*layers, *sampling)
        return
    layers_first = bytes_of(iter(layers)) >= bytes_of(iter(sampling))
    if not numpy.ndim(layers_first):
        yield from layers if layers_first else sampling
        return
    # of many plans at once each line counts where its side is the larger
    for line in layers:
        yield replace(line, bytes=where(layers_first, line.bytes, 0.0))
    for line in sampling:
        yield replace(line, bytes=where(layers_first, 0.0, line.bytes))


def _sampling_lines(deployment: Deployment) -> Iterator[HeldLine]:
    """The logits of the sequences of an iteration; after the layers also the hidden states that they are made of."""
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
    widths = [
        product(section.dims[name] for name in op.output.names if name not in ("b", "t"))
        for section in deployment.sections
        if section.name not in ("embed", "head")
        for op in section.ops
        if op.function == "einsum" and op.output is not None and not {"s", "m"} & set(op.output.names)
    ]
    head = deployment.sections[-1].dims
    yield HeldLine("workspace", "residuals", tokens * 4 * head["d"] * 2, "step", "step")
    hidden = tokens * 3 * maximum(*widths) / mesh.size("expert", "tensor", "share") * 2
    yield HeldLine("workspace", "hidden", hidden, "step", "step")
    mixtures = [section.dims for section in deployment.sections if "e" in section.dims]
    if deployment.engine.memory.expert_rows and mixtures and not deployment.exchanges:
        wide, inner = mixtures[0]["d"], mixtures[0]["f"] / mesh.size("tensor", "share")
        # each row in 16 bits, in turn before and after the experts, and in 8 or 16 between them, with its gate
        each = mixtures[0]["x"] * (maximum(2 * wide, inner) + maximum(4 * inner, 2 * wide)) + 4 * wide
        yield HeldLine("workspace", "experts", limits.max_tokens * mesh.size("data") * each, "step", "step")


def bytes_of(lines: Iterator[HeldLine]) -> Number:
    """Bytes of some lines together."""
    return sum((line.bytes for line in lines), 0.0)
