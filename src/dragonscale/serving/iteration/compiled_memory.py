"""Peak memory of a compiled program by part: its arguments (weights, cache, tokens) and the live activations.

Weights and caches are sharded evenly. How many copies of each activation are live at the peak is up to the compiler;
the engine's `program.alive` lists them by kind of chip and phase.
"""

from collections.abc import Iterator

from dragonscale.models.count import weight_size
from dragonscale.models.program import Op, Section
from dragonscale.physics.numbers import first_number, product
from dragonscale.plan.ledger import HeldLine
from dragonscale.plan.rules import Rules
from dragonscale.serving.engine.plan import shared_kv
from dragonscale.serving.iteration.compiled import BF16_BYTES, capacity_rows
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration
from dragonscale.serving.iteration.kernel_times import KernelBench


class _Step:
    """One program's sizes: `tokens` new ones of each of `batch` sequences, and a cache of `length` tokens."""

    def __init__(self, deployment: Deployment, iteration: Iteration) -> None:
        numbers = Iteration(*(first_number(value) for value in vars(iteration).values()))
        self.deployment, self.mesh = deployment, deployment.mesh
        self.prompt = numbers.decodes == 0
        if self.prompt:
            self.batch, self.tokens, past = numbers.prompts, numbers.tokens, numbers.past
        else:
            self.batch, self.tokens, past = numbers.decodes, numbers.queries, numbers.keys
        self.length = self.tokens + past
        self.local_batch = self.batch / self.mesh.size("data")

    def rules(self, section: Section) -> Rules:
        """The layouts of a section's tensors."""
        return self.deployment.rules(self.prompt, section)

    def dims(self, section: Section) -> dict[str, float]:
        """The sizes of a section's dims; the head sees one token of each sequence."""
        tokens = 1 if section.name == "head" else self.tokens
        sizes = {**section.dims, "b": self.batch, "t": tokens, "s": self.length}
        if shared_kv(section.dims, self.mesh):
            sizes["k"] = 1
        return sizes

    def bench(self, section: Section) -> KernelBench:
        """What a section's kernels run on."""
        return self.deployment.bench(section, self.prompt)


def program_lines(deployment: Deployment, iteration: Iteration) -> Iterator[HeldLine]:
    """What lies in memory at the peak of one prefill, or of one decode step."""
    step = _Step(deployment, iteration)
    phase = "prefill" if step.prompt else "decode"
    live = deployment.engine.program.alive
    copies = next(row for row in live if (row.chip, row.phase) == (deployment.chip.kind, phase))
    sections = deployment.sections if step.prompt else deployment.decoding
    # Layers run one after the other, so of their activations only the largest counts.
    layer_cache = hidden = scores = 0.0
    for section in sections:
        yield from _weights(section, step)
        cached = list(_cache(section, step))
        yield from cached
        layer_cache = max(layer_cache, sum(line.bytes for line in cached) / section.repeat)
        for op in section.ops:
            if op.function == "act":
                hidden = max(hidden, _hidden(section, op, step))
            elif op.function == "attend":
                scores = max(scores, _scores(section, op, step))
    head = sections[-1]
    logits = head.ops[-1].output
    assert logits is not None
    vocab_ways = step.mesh.size(*step.rules(head).at_rest(logits).dim("v").axes)
    yield HeldLine("tokens", "tokens", 4.0 * step.local_batch * (step.tokens + 1))  # int32 ids, and a length

    activations = {
        "FFN hidden": copies.hidden * hidden,
        "attention block": copies.scores * scores,
        "residuals": copies.residual * step.local_batch * step.tokens * sections[0].dims["d"] * BF16_BYTES,
        "one layer's cache": copies.cache * layer_cache,
        "logits": copies.logits * step.local_batch * head.dims["v"] / vocab_ways * 4.0,  # fp32
    }
    for name, size in activations.items():
        yield HeldLine(name, name, size, phase, phase)


def _weights(section: Section, step: _Step) -> Iterator[HeldLine]:
    """A section's weights, once each; the head shares the embedding's."""
    seen: set[str] = set()
    for op in section.ops:
        for array in op.weights:
            is_embedding = array.name in section.shared and section.name == "head"
            if array.name in seen or is_embedding:
                continue
            seen.add(array.name)
            layout = step.rules(section).at_rest(array)
            size = section.repeat * BF16_BYTES * weight_size(section, array) / step.mesh.size(*layout.axes)
            yield HeldLine("weights", array.name, size, section=section.name)


def _cache(section: Section, step: _Step) -> Iterator[HeldLine]:
    """A section's cached tensors, allocated for the whole length."""
    dims = step.dims(section)
    for op in section.ops:
        if op.function != "cache":
            continue
        for array in op.inputs:
            layout = step.rules(section).cached(array)
            elements = product(dims[dim.name] / step.mesh.size(*dim.axes) for dim in layout.dims)
            yield HeldLine("cache", array.name, section.repeat * BF16_BYTES * float(elements), section=section.name)


def _scores(section: Section, op: Op, step: _Step) -> float:
    """Bytes of a block of attention scores in fp32: (batch, heads, queries of a block, keys)."""
    query = step.rules(section).attending(op.inputs[0])
    heads = section.dims["n"] / step.mesh.size(*query.dim("n").axes)
    block = step.tokens
    size = step.deployment.engine.program.attention_block
    if size and block > size and block % size == 0:
        block = size
    return step.local_batch * heads * block * step.length * 4.0


def _hidden(section: Section, op: Op, step: _Step) -> float:
    """Bytes of a nonlinearity's output: for every token, or for all rows that experts have capacity for."""
    assert op.output is not None
    layout = step.rules(section).at_rest(op.output)
    if "x" not in op.output.names:
        dims = step.dims(section)
        return BF16_BYTES * float(product(dims[dim.name] / step.mesh.size(*dim.axes) for dim in layout.dims))
    # (local experts x senders, rows, hidden)
    experts = section.dims["e"] / step.mesh.size("data", "expert") * step.bench(section).senders
    hidden = section.dims[op.output.names[-1]] / step.mesh.size(*layout.dims[-1].axes)
    return experts * capacity_rows(step.batch * step.tokens, step.bench(section)) * hidden * BF16_BYTES
