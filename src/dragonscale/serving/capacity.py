"""What fits: weights, working memory and the cache on each chip, in bytes, tokens, pages and sequences.

The ideal is what the tensors themselves weigh; the reserved is what an engine takes: whole pages, its own overhead, the
part of the memory it leaves alone. A plan that reserves less than its ideal would be a bug.
"""

from dataclasses import dataclass
from typing import Any

import numpy

from dragonscale.hardware import Chip
from dragonscale.hardware.chip import dtype_bytes
from dragonscale.models.count import weight_size
from dragonscale.models.program import Section
from dragonscale.numbers import Number, ceil_to, maximum, minimum, product
from dragonscale.serving.deployment import Deployment
from dragonscale.serving.formats import weight_bytes
from dragonscale.serving.rules import ServingRules
from dragonscale.sharding.mesh import Mesh
from dragonscale.sharding.pieces import local_size


@dataclass(frozen=True)
class Capacity:
    """Bytes on the busiest chip, and the tokens of cache that one copy of the model has room for.

    `per_token` is what each further token of a sequence adds on one chip, averaged over sequences that `data` or `batch`
    splits deal out; `fixed` is a sequence's state of fixed size (recurrences, full windows). `tokens` counts those of
    all sequences together; it is below zero where not even the weights fit.
    """

    hbm: float
    usable: float
    weights: Number
    working: Number
    reserve: float
    per_token: Number
    fixed: Number
    page: int
    places: Number

    @property
    def cache(self) -> Number:
        """Bytes of each chip that are left for the cache."""
        return self.usable - self.weights - self.working - self.reserve

    @property
    def tokens(self) -> Number:
        """Tokens of cache in all, of sequences without a fixed state."""
        return self.cache / maximum(self.per_token, 1e-9)

    @property
    def fits(self) -> Any:
        """Whether weights and working memory leave room for anything at all."""
        return self.cache > 0

    def sequences(self, tokens: Number) -> Number:
        """How many sequences of so many tokens fit, each rounded up to whole pages (and half a page lost at its end)."""
        held = ceil_to(tokens, self.page) if self.page > 1 else tokens
        return numpy.floor(maximum(self.cache, 0.0) / (held * self.per_token + self.fixed))

    def held(self, sequences: Number, tokens: Number) -> Number:
        """Bytes in use on the busiest chip with so many sequences of so many tokens."""
        kept = ceil_to(tokens, self.page) if self.page > 1 else tokens
        return self.weights + self.working + self.reserve + sequences * (kept * self.per_token + self.fixed)


def section_weights(
    section: Section, deployment: Deployment, rules: ServingRules, mesh: Mesh, seen: set[str]
) -> Number:
    """Bytes of a section's weights on one chip, once; what the whole program shares is counted where it is first seen."""
    total: Number = 0.0
    for op in section.ops:
        for weight in op.weights:
            if weight.name in section.shared:
                if weight.name in seen:
                    continue
                seen.add(weight.name)
            laid = rules.weight(weight)
            ways: Number = 1.0
            for dim in laid.dims:
                size = section.dims[dim.name]
                ways = ways * (size / local_size(dim.name, size, mesh.size(*dim.axes)))
            total = total + weight_size(section, weight) / ways * weight_bytes(deployment.plan, op.part)
    return total


def weights_per_chip(deployment: Deployment) -> Number:
    """Bytes of weights on the busiest chip; a pipeline's layers are dealt out evenly, the head beside the last ones."""
    rules, mesh = deployment.rules(prompt=False), Mesh(deployment.axes)
    seen: set[str] = set()
    blocks: Number = 0.0
    ends: Number = 0.0
    for section in deployment.sections:
        size = section_weights(section, deployment, rules, mesh, seen)
        if section.name in ("embed", "head"):
            ends = ends + size
        else:
            blocks = blocks + size * section.repeat
    return blocks / deployment.plan.pipe + ends


def cache_per_chip(deployment: Deployment, tokens: Number) -> Number:
    """Bytes that one sequence of `tokens` keeps on one chip, averaged over the places that sequences are dealt out to."""
    rules, mesh = deployment.rules(prompt=False), Mesh(deployment.axes)
    total: Number = 0.0
    for section in deployment.sections:
        cap = section.span if section.span is not None else section.chunk
        held = minimum(tokens, cap) if cap is not None and not deployment.engine.memory.whole_windows else tokens
        past = tokens / section.compress if section.compress is not None else tokens
        for op in section.ops:
            for array in op.inputs if op.function == "cache" else ():
                laid = rules.cached(array)
                sizes: dict[str, Number] = {**section.dims, "s": held, "m": past}
                elements = product(
                    sizes[dim.name] / mesh.size(*dim.axes)
                    if dim.name in ("s", "m")
                    else local_size(dim.name, sizes[dim.name], mesh.size(*dim.axes))
                    for dim in laid.dims
                    if dim.name != "b"
                )
                places = mesh.size(*next(dim.axes for dim in laid.dims if dim.name == "b"))
                width = dtype_bytes(
                    array.dtype
                    or ("fp8" if op.part == "indexer" and dtype_bytes(deployment.plan.kv) == 1 else deployment.plan.kv)
                )
                total = total + elements / places * width * section.repeat
    return total / deployment.plan.pipe


def working_bytes(deployment: Deployment) -> Number:
    """Activations of the largest iteration: its residuals, the widest hidden layer and the logits of its sequences."""
    engine, mesh = deployment.engine, Mesh(deployment.axes)
    tokens = engine.scheduling.max_tokens / mesh.size("data")
    widest = max(
        product(section.dims[name] for name in array.names if name not in ("b", "t"))
        for section in deployment.sections
        if section.name not in ("embed", "head")
        for op in section.ops
        if op.function == "einsum" and op.output is not None
        for array in (op.output,)
        if "s" not in array.names and "m" not in array.names
    )
    hidden = tokens * (4 * deployment.model.d_model + 3 * widest / mesh.size("expert", "tensor", "share")) * 2
    logits = (
        minimum(engine.scheduling.max_sequences, engine.scheduling.max_tokens)
        / mesh.size("data")
        * deployment.model.vocab
        * 4
    )
    return hidden + logits


BINARY = 1.024**3
"""Datasheets of GPUs write GB where the chips hold GiB: drivers report 81,559 MiB for an H100 of 80 GB, 143,771 MiB for an H200 of
141 GB, 183,359 MiB for a B200 of 180 GB."""


def memory_bytes(chip: Chip) -> float:
    """Bytes of main memory that software finds on a chip.

    >>> from dragonscale.hardware import load_chip
    >>> round(memory_bytes(load_chip("h100")) / 2**20), memory_bytes(load_chip("v5e"))
    (81920, 16000000000.0)
    """
    return float(chip.hbm.capacity) * (BINARY if chip.kind == "gpu" else 1.0)


def capacity(deployment: Deployment) -> Capacity:
    """The memory of one copy of the model."""
    engine = deployment.engine
    hbm = memory_bytes(deployment.chip)
    far = 2.0**20
    slope = (cache_per_chip(deployment, 2 * far) - cache_per_chip(deployment, far)) / far
    mesh = Mesh(deployment.axes)
    ideal = engine.name == "ideal"
    return Capacity(
        hbm=hbm,
        usable=hbm * engine.memory.share,
        weights=weights_per_chip(deployment),
        working=0.0 if ideal else working_bytes(deployment),
        reserve=engine.memory.reserve_bytes,
        per_token=slope,
        fixed=cache_per_chip(deployment, far) - slope * far,
        page=engine.memory.page,
        places=mesh.size("data"),
    )
