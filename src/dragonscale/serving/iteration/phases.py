"""One iteration of an engine as a ledger: a line for each kernel, each move and each wait.

An iteration prefills chunks of prompts, advances decoding sequences by a token, or both. All new tokens go through the
matmuls together; attention is separate for prompts and for single tokens; the head only sees the last token of each
prompt. Bounds, terms and the expectation are groupings of these lines, see `iteration.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy
from numpy.typing import NDArray

from dragonscale.models.program import Section
from dragonscale.physics.kernels import memory_seconds
from dragonscale.physics.numbers import Number, where
from dragonscale.plan.reader import Kernel, Reading, read_forward
from dragonscale.serving.engine.engine import captured, filled
from dragonscale.serving.engine.plan import shared_kv
from dragonscale.serving.iteration.attention_lines import (
    AttendedSequences,
    decode_attention_line,
    prefill_attention_line,
)
from dragonscale.serving.iteration.balance import expert_slots, hot_load
from dragonscale.serving.iteration.compiled import boxing_line, routing_lines, scanned_line
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.host_weights import with_host_weights
from dragonscale.serving.iteration.iteration import (
    Iteration,
    IterationCost,
    PipelinePart,
    ServingLine,
    decode,
    prefill,
)
from dragonscale.serving.iteration.kernel_lines import (
    elementwise_line,
    expert_calls,
    expert_line,
    matmul_line,
    recurrent_line,
)
from dragonscale.serving.iteration.kernel_times import KernelBench
from dragonscale.serving.iteration.move_lines import hop_line, move_lines

__all__ = ["Iteration", "IterationCost", "decode", "iteration_cost", "prefill"]


def iteration_cost(deployment: Deployment, iteration: Iteration, whole: bool = False) -> IterationCost:
    """The cost of an iteration (or of many: arrays; or as formulas) on one copy of the model.

    With a pipeline the batch is cut into one part for each stage, and the parts follow each other through the stages.
    The iteration takes as long as one part needs for all layers and the hops between stages. With `whole` the iteration
    already is such a part.
    """
    stages = 1 if whole else deployment.plan.pipe
    limits = deployment.engine.scheduling
    budget = limits.max_tokens if limits.scheduler == "chunked" else math.inf
    part = iteration.one_part(stages, budget, wide=deployment.timed)
    decoding = part.decodes > 0
    if numpy.all(decoding) or not numpy.any(decoding):
        return _cost(deployment, part, prompt=not numpy.any(decoding))
    if len(numpy.atleast_1d(deployment.plan.tensor)) > 1:
        raise AssertionError("one structure of iteration at a time for many plans")
    return _merged(deployment, part, decoding)


def _merged(deployment: Deployment, part: PipelinePart, decoding: NDArray[numpy.bool_]) -> IterationCost:
    """Iterations with and without decoding sequences in one cost; each line is zero where it does not run."""
    cost = IterationCost()
    for mask, prompt in ((decoding, False), (~decoding, True)):
        alike = _cost(deployment, part.masked(mask), prompt)
        cost.lines += [_scattered_line(line, mask) for line in alike.lines]
        cost.host = cost.host + _scattered(alike.host, mask)
        cost.sampling = cost.sampling + _scattered(alike.sampling, mask)
        cost.issuing = cost.issuing + _scattered(alike.issuing, mask)
        cost.streaming = cost.streaming + _scattered(alike.streaming, mask)
    return cost


def _scattered(value: Number, mask: NDArray[numpy.bool_]) -> NDArray[numpy.float64]:
    """Values of the iterations in a mask, with zeros for the others: (iterations,)."""
    column = numpy.zeros(len(mask))
    column[mask] = value
    return column


def _scattered_line(line: ServingLine, mask: NDArray[numpy.bool_]) -> ServingLine:
    columns: dict[str, Any] = {}
    for field in fields(line):
        value = getattr(line, field.name)
        if field.name != "times" and isinstance(value, int | float | numpy.ndarray):
            columns[field.name] = _scattered(value, mask)
    return replace(line, **columns)


def _cost(deployment: Deployment, part: PipelinePart, prompt: bool) -> IterationCost:
    """The cost of iterations that only prefill (`prompt`), or that decode, with or without prompts beside."""
    cost = IterationCost()
    tokens, sampled = part.new_tokens, part.sampled
    if not prompt and deployment.timed:
        tokens, sampled = (_padded_to_graph(deployment, part, rows) for rows in (tokens, sampled))
    costed: dict[object, Any] = {}  # lines that sections with equal layouts share
    for section in deployment.sections if prompt else deployment.decoding:
        rows = sampled if section.name == "head" else tokens
        # A matmul sees a batch of single tokens; attention of prompts also needs their lengths.
        sizes: dict[str, Number] = {**_dims(section, deployment), "b": rows, "t": 1.0, "s": 1.0, "m": 1.0}
        if prompt and section.name != "head":
            sizes |= {"b": part.prompts, "t": part.tokens, "s": part.tokens + part.past}
            sizes["m"] = sizes["s"] / (section.compress or 1)
        reading = _reading(deployment, section, prompt)
        bench = deployment.bench(section, prompt, costed)
        hot = _hot(rows, sizes, bench)
        cost.lines += _kernel_lines(reading, sizes, part, rows, bench, hot)
        cost.lines += move_lines(deployment, reading, sizes, bench, hot)
        if deployment.engine.program.scan_bytes and prompt and deployment.timed and "block" in section.name:
            cost.lines.append(scanned_line(deployment.rules(prompt, section).at_rest, bench))
        if deployment.engine.program.expert_capacity and "e" in section.dims:
            cost.lines += [*routing_lines(section, rows, bench), boxing_line(rows, bench)]
    if not prompt and numpy.any(part.prompts > 0):
        cost.lines += _prompt_attention_lines(deployment, part)
    if not numpy.all(deployment.plan.pipe == 1):
        cost.lines.append(hop_line(deployment, tokens, "prefill" if prompt else "decode"))
    offload = deployment.engine.offload
    if offload.layers or offload.expert_layers:
        lines = with_host_weights(cost.lines, deployment.sections, offload, deployment.chip, deployment.layers)
        cost.lines = list(lines)
    if deployment.timed:
        _add_host(cost, deployment, part)
    return cost


def _padded_to_graph(deployment: Deployment, part: PipelinePart, rows: Number) -> Number:
    """Rows of a decode step, padded on every data rank to the next captured graph."""
    sizes = deployment.engine.host.graph_sizes
    if not sizes:
        return rows
    ranks = deployment.plan.data
    # iterations with prompts replay no graph of decoding
    return where(part.prompts > 0, rows, filled(rows / ranks, sizes) * ranks)


def _reading(deployment: Deployment, section: Section, prompt: bool) -> Reading:
    """The kernels and moves of a section under the plan's rules, read once."""
    readings, key = deployment.readings, (section.name, prompt)
    if key not in readings:
        readings[key] = read_forward(section, deployment.rules(prompt, section))
    return readings[key]


def _dims(section: Section, deployment: Deployment) -> dict[str, Number]:
    """The dims of a section; a KV head that chips of a compiled program share counts as one head on each."""
    dims = dict(section.dims)
    if deployment.engine.program.divided and shared_kv(section.dims, deployment.mesh):
        dims["k"] = 1
    return dims


def _hot(tokens: Number, sizes: dict[str, Number], bench: KernelBench) -> Number:
    """The busiest rank's load of a section's experts over the mean; 1 if tokens are not sent to experts."""
    if "e" not in sizes or not (bench.timed and bench.exchange):
        return 1.0
    habits, experts, ranks = bench.engine.experts, sizes["e"], bench.mesh.size("data", "expert")
    slots = expert_slots(experts, ranks, habits.redundant)
    return hot_load(habits, int(experts), slots, ranks, tokens * sizes["x"] / ranks)


_EXPERTS = ("experts",)
"""Key of the matmuls that a router selects weights for; they run as one grouped matmul."""


def _kernel_lines(
    reading: Reading, sizes: dict[str, Number], part: PipelinePart, tokens: Number, bench: KernelBench, hot: Number
) -> list[ServingLine]:
    """The kernels of a section, with matmuls that read the same tensor, and all of a layer's experts, as one each."""
    prompt = bench.phase == "prefill"
    lines: list[ServingLine | None] = []
    matmuls: dict[tuple[object, ...], list[Kernel]] = {}
    # recurrent layers keep a state for each drafted token, since drafts may be rejected
    sequences = part.prompts if prompt else part.decodes * part.queries
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            key: tuple[object, ...] = (kernel.part, *(array.name for array in kernel.op.inputs))
            if any(dim.select for weight in kernel.op.weights for dim in weight.dims):
                key = _EXPERTS
            elif not bench.engine.kernels.joined:
                key = (*key, len(matmuls))
            matmuls.setdefault(key, []).append(kernel)
        elif kernel.function in ("attend", "score"):
            if prompt:
                lines.append(prefill_attention_line(kernel, _prompts(part), sizes, bench))
            else:
                attended = AttendedSequences(part.decodes, part.queries, part.keys + part.queries)
                lines.append(decode_attention_line(kernel, attended, sizes, bench))
        elif kernel.function in ("scan", "delta"):
            lines.append(recurrent_line(kernel, tokens, sequences, sizes, bench))
        else:
            lines.append(_shared_line(elementwise_line, [kernel], sizes, bench))
    for key, kernels in matmuls.items():
        if key == _EXPERTS:
            lines.append(expert_line(kernels, tokens, sizes, bench, hot))
        else:
            lines.append(_shared_line(matmul_line, kernels, sizes, bench))
    return [line for line in lines if line is not None]


def _shared_line(
    make: Callable[..., ServingLine | None], kernels: Sequence[Kernel], sizes: dict[str, Number], bench: KernelBench
) -> ServingLine | None:
    """The line that `make` builds for some kernels, or that of another section with equal layouts and sizes."""
    layouts = tuple(kernel.layout[0] for kernel in kernels)
    local_sizes = [sizes.get(name) for kernel in kernels for name in kernel.layout[1]]
    section = bench.section
    line = bench.once(make, layouts, local_sizes, kernels, sizes, bench)
    if line is not None and line.section != section.name:
        return replace(line, section=section.name, times=section.repeat)
    return line


def _prompts(part: PipelinePart) -> AttendedSequences:
    return AttendedSequences(part.prompts, part.tokens, part.tokens + part.past)


def _prompt_attention_lines(deployment: Deployment, part: PipelinePart) -> list[ServingLine]:
    """Attention of prompts that share an iteration with decoding sequences."""
    lines: list[ServingLine] = []
    prompts = _prompts(part)
    has_prompts = part.prompts > 0
    for section in deployment.sections:
        lengths = {"b": part.prompts, "t": part.tokens, "s": prompts.keys, "m": 1.0}
        sizes: dict[str, Number] = {**_dims(section, deployment), **lengths}
        bench = deployment.bench(section, prompt=True)
        for kernel in _reading(deployment, section, prompt=True).kernels:
            if kernel.function in ("attend", "score"):
                line = prefill_attention_line(kernel, prompts, sizes, bench)
                lines.append(line if numpy.all(has_prompts) else _only_where(has_prompts, line))
    return lines


def _only_where(mask: Any, line: ServingLine) -> ServingLine:
    """The line in iterations with prompts, zero in others; the kernels that it issues count in all of them."""
    names = ("flops", "hbm_bytes", "bound_s", "expected_s", "exposed_s", "compute_s", "memory_s")
    return replace(line, **{name: numpy.where(mask, getattr(line, name), 0.0) for name in names})


def _add_host(cost: IterationCost, deployment: Deployment, part: PipelinePart) -> None:
    """Add sampling, the host's exposed time, and its pace where it issues kernels one by one."""
    engine, host = deployment.engine, deployment.engine.host
    ways = deployment.mesh.size("data")
    logits = part.sampled / ways * deployment.model.vocab
    sampling = memory_seconds(logits * host.sample_bytes, deployment.kernels)
    # one process for each data rank
    exposed = host.sequence_s * part.decodes + host.prompt_s * part.prompts
    exposed = exposed + host.token_s * part.prompts * part.tokens
    cost.host = host.step_s + exposed / ways
    if host.prompt_step_s:
        cost.host = cost.host + where(part.prompts > 0, host.prompt_step_s, 0.0)
    cost.sampling = host.sample_s + sampling + engine.kernels.gap_s * cost.issued
    rows = part.decodes * part.queries / deployment.plan.data
    replayed = where(part.prompts > 0, host.prompt_graphs, captured(rows, host.graph_sizes) & host.graphs)
    expert_layers = sum(line.times for line in cost.lines if line.term == "experts")
    expert_layers = expert_layers * expert_calls(engine.experts, deployment.plan, deployment.kernels)
    pace = cost.issued * host.kernel_s + expert_layers * host.expert_layer_s + deployment.latent * host.latent_layer_s
    pace = pace + deployment.recurrent * host.recurrent_layer_s
    cost.issuing = where(replayed, 0.0, pace) + host.loop_s + host.loop_sequence_s * part.decodes / ways
    cost.streaming = host.token_stream_s * part.streamed
