"""One iteration of an engine as a ledger: a line for each kernel, each move and each wait.

An iteration prefills chunks of prompts, advances decoding sequences by a token, or both. All new tokens go through the
matmuls together; attention is apart for prompts and for single tokens; the head only sees the last token of each. What
is shown of an iteration (bounds, terms, the expectation) are groupings of its lines, see `iteration.py`.

What of a token travels to its experts and back.

Written plainly, a token's whole width goes to each of its experts in the format of activations, and each expert's
result comes back. Libraries for large expert parallelism do less: tokens leave in fp8 (`dispatch_bytes` of 1), and in
prefill (`expert_dedup`) a token goes only once to every node, or to every chip inside one, where several of its experts
are. Of n places, k experts picked at random are in n·(1 − (1 − 1/n)^k).
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy

from dragonscale.models.program import Section
from dragonscale.physics.collectives import collective_time, wire_bytes
from dragonscale.physics.collectives.group import Group, Switches
from dragonscale.physics.collectives.profile import expected_time, shared_profile
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.kernels import memory_seconds
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, is_array, maximum, minimum, where
from dragonscale.physics.sharding.layout import local_size
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.reader import Kernel, Move, Reading, read_forward
from dragonscale.serving.engine.engine import captured, filled
from dragonscale.serving.engine.plan import shared_kv
from dragonscale.serving.iteration.balance import expert_slots, hot_load
from dragonscale.serving.iteration.compiled import boxing_line, expert_volume, routing_lines, scanned_line
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import Iteration, IterationCost, ServingLine, decode, prefill
from dragonscale.serving.iteration.kernel_lines import (
    AttendedSequences,
    decode_attention_line,
    elementwise_line,
    expert_calls,
    expert_line,
    matmul_line,
    prefill_attention_line,
    recurrent_line,
)
from dragonscale.serving.iteration.kernel_times import KernelBench
from dragonscale.training.cost.move_times import EXACT, sent_once

__all__ = ["Iteration", "IterationCost", "decode", "iteration_cost", "prefill"]


def iteration_cost(deployment: Deployment, iteration: Iteration, whole: bool = False) -> IterationCost:
    """The cost of an iteration (or of many: arrays; or as formulas) on one copy of the model.

    With a pipeline the batch is cut into as many parts as there are stages, which follow each other through them; the
    iteration takes as long as one part's way through all layers and over the hops between the stages. With `whole` it
    is one such part already.
    """
    stages = 1 if whole else deployment.plan.pipe
    limits = deployment.engine.scheduling
    budget = limits.max_tokens if limits.scheduler == "chunked" else math.inf
    known = iteration.one_part(stages, budget, wide=deployment.timed)
    decodes = known["decodes"] > 0
    if numpy.all(decodes) or not numpy.any(decodes):
        return _cost(deployment, known, prompt=not numpy.any(decodes))
    if len(numpy.atleast_1d(deployment.plan.tensor)) > 1:
        raise AssertionError("one structure of iteration at a time for many plans")
    return _merged(deployment, known, decodes)


def _merged(deployment: Deployment, known: dict[str, Any], decodes: Any) -> IterationCost:
    """Iterations with and without decoding sequences, each read in its own form: lines are zero where
    they do not run."""
    found = IterationCost()
    for mask, prompt in ((decodes, False), (~decodes, True)):
        part = _cost(deployment, {name: array[mask] for name, array in known.items()}, prompt)
        found.lines += [_spread(line, mask) for line in part.lines]
        for name in ("host", "sampling", "issuing", "streaming"):
            setattr(found, name, getattr(found, name) + _wide(getattr(part, name), mask))
    return found


def _wide(value: Any, mask: Any) -> Any:
    full = numpy.zeros(len(mask))
    full[mask] = value
    return full


def _spread(line: ServingLine, mask: Any) -> ServingLine:
    changed = {
        field.name: _wide(value, mask)
        for field in fields(line)
        if field.name != "times" and isinstance(value := getattr(line, field.name), int | float | numpy.ndarray)
    }
    return replace(line, **changed)


def _cost(deployment: Deployment, known: dict[str, Any], prompt: bool) -> IterationCost:
    cost = IterationCost()
    new = known["decodes"] * known["queries"] + known["prompts"] * known["tokens"]
    last = known["decodes"] * known["queries"] + known["prompts"]
    if not prompt and deployment.timed:
        new, last = (_filled(deployment, known, rows) for rows in (new, last))
    twins: dict[object, Any] = {}
    for section in deployment.sections if prompt else deployment.decoding:
        tokens = last if section.name == "head" else new
        sizes: dict[str, Number] = {**_dims(section, deployment), "b": tokens, "t": 1.0, "s": 1.0, "m": 1.0}
        if prompt and section.name != "head":
            sizes |= {"b": known["prompts"], "t": known["tokens"], "s": known["tokens"] + known["past"]}
            sizes["m"] = sizes["s"] / (section.compress or 1)
        reading = _reading(deployment, section, prompt)
        bench = deployment.bench(section, prompt, twins)
        hot = _hot(tokens, sizes, bench)
        cost.lines += _kernel_lines(reading, sizes, known, tokens, bench, hot)
        cost.lines += _move_lines(deployment, reading, sizes, bench, hot)
        if deployment.engine.program.scan_bytes and prompt and deployment.timed and "block" in section.name:
            cost.lines.append(scanned_line(deployment.rules(prompt, section).at_rest, bench))
        if deployment.engine.program.expert_capacity and "e" in section.dims:
            cost.lines += [*routing_lines(section, tokens, bench), boxing_line(tokens, bench)]
    if not prompt and numpy.any(known["prompts"] > 0):
        cost.lines += _beside(deployment, known)
    if not numpy.all(deployment.plan.pipe == 1):
        cost.lines.append(_hop_line(deployment, new, "prefill" if prompt else "decode"))
    _add_host(cost, deployment, known, known["decodes"] * known["queries"] + known["prompts"])
    return cost


def _hop_line(deployment: Deployment, tokens: Number, phase: str) -> ServingLine:
    """The residual stream of one part on its way to the next stage: every chip sends a part of the rows to its
    counterpart and the receivers gather them (vLLM's `send_tensor_dict`). A part waits for its own hops, however many
    others are under way."""
    mesh, stages, head = deployment.mesh, deployment.plan.pipe, deployment.sections[-1].dims
    rows = maximum(tokens / mesh.size("data", "context"), 1.0)
    volume = rows * head["d"] * dtype_bytes(deployment.plan.wire) / mesh.size("width", "expert", "tensor", "share")
    group = deployment.wires.group(("pipe",))
    lower = taken = collective_time("permute", volume, group, EXACT).bandwidth
    if deployment.timed:
        taken = expected_time("permute", volume, group, shared_profile(deployment.network, group), EXACT)
    times = {"bound_s": lower, "expected_s": taken, "exposed_s": taken}
    line = ServingLine("step", phase, "R", "permute", ("pipe",), stages - 1, carries="activation", **times)
    return replace(line, wire_bytes=volume, volume=volume, issued=2.0)


def _filled(deployment: Deployment, known: dict[str, Any], rows: Any) -> Any:
    """The rows of a step with those that fill its graph up, on every data rank."""
    sizes = deployment.engine.host.graph_sizes
    if not sizes:
        return rows
    ranks = deployment.plan.data
    return where(known["prompts"] > 0, rows, filled(rows / ranks, sizes) * ranks)


def _reading(deployment: Deployment, section: Section, prompt: bool) -> Reading:
    known, key = deployment.readings, (section.name, prompt)
    if key not in known:
        known[key] = read_forward(section, deployment.rules(prompt, section))
    return known[key]


def _dims(section: Section, deployment: Deployment) -> dict[str, Number]:
    """The dims of a section; a KV head that chips of a compiled program share is one head on each."""
    one = deployment.engine.program.divided and shared_kv(section.dims, deployment.mesh)
    return {**section.dims, "k": 1} if one else dict(section.dims)


def _hot(tokens: Number, sizes: dict[str, Number], bench: KernelBench) -> Any:
    """The busiest rank's part of a section's experts over the mean; 1 where tokens are not sent to experts."""
    if "e" not in sizes or not (bench.timed and bench.exchange):
        return 1.0
    habits, experts, ranks = bench.engine.experts, sizes["e"], bench.mesh.size("data", "expert")
    slots = expert_slots(experts, ranks, habits.redundant)
    return hot_load(habits, int(experts), slots, ranks, tokens * sizes["x"] / ranks)


def _kernel_lines(
    reading: Reading, sizes: dict[str, Number], known: dict[str, Any], tokens: Number, bench: KernelBench, hot: Any
) -> list[ServingLine]:
    prompt = bench.phase == "prefill"
    lines: list[ServingLine | None] = []
    matmuls: dict[tuple[object, ...], list[Kernel]] = {}
    sequences = known["prompts"] if prompt else known["decodes"] * known["queries"]  # guesses keep a state each
    for kernel in reading.kernels:
        if kernel.function == "matmul":
            routed = any(dim.select for weight in kernel.op.weights for dim in weight.dims)
            alone = () if bench.engine.kernels.joined else (len(matmuls),)
            key = ("experts",) if routed else (kernel.part, *(array.name for array in kernel.op.inputs), *alone)
            matmuls.setdefault(key, []).append(kernel)
        elif kernel.function in ("attend", "score"):
            if prompt:
                lines.append(prefill_attention_line(kernel, _prompts(known), sizes, bench))
            else:
                seen = AttendedSequences(known["decodes"], known["queries"], known["keys"] + known["queries"])
                lines.append(decode_attention_line(kernel, seen, sizes, bench))
        elif kernel.function in ("scan", "delta"):
            lines.append(recurrent_line(kernel, tokens, sequences, sizes, bench))
        else:
            lines.append(_line(elementwise_line, [kernel], sizes, bench))
    for key, kernels in matmuls.items():
        routed = key == ("experts",)
        plain = None if routed else _line(matmul_line, kernels, sizes, bench)
        lines.append(expert_line(kernels, tokens, sizes, bench, hot) if routed else plain)
    return [line for line in lines if line is not None]


def _line(make: Any, kernels: Sequence[Kernel], sizes: dict[str, Number], bench: KernelBench) -> ServingLine | None:
    """The line of some kernels, which those of another section with equal layouts and sizes may have been already."""
    layout, dims = zip(*(kernel.layout for kernel in kernels), strict=True)
    own, section = [sizes.get(name) for names in dims for name in names], bench.section
    line = bench.once(make, layout, own, kernels, sizes, bench)
    if line is not None and line.section != section.name:
        return replace(line, section=section.name, times=section.repeat)
    return line


def _prompts(known: dict[str, Any]) -> AttendedSequences:
    return AttendedSequences(known["prompts"], known["tokens"], known["tokens"] + known["past"])


def _beside(deployment: Deployment, known: dict[str, Any]) -> list[ServingLine]:
    """Attention of prompts that share an iteration with decoding sequences."""
    lines: list[ServingLine] = []
    seen = _prompts(known)
    some = known["prompts"] > 0
    for section in deployment.sections:
        own = {"b": known["prompts"], "t": known["tokens"], "s": seen.keys, "m": 1.0}
        sizes: dict[str, Number] = {**_dims(section, deployment), **own}
        bench = deployment.bench(section, prompt=True)
        for kernel in _reading(deployment, section, prompt=True).kernels:
            if kernel.function in ("attend", "score"):
                line = prefill_attention_line(kernel, seen, sizes, bench)
                lines.append(line if numpy.all(some) else _where(some, line))
    return lines


def _where(some: Any, line: ServingLine) -> ServingLine:
    """The line where there are prompts; the kernels it issues are counted all the same."""
    names = ("flops", "hbm_bytes", "bound_s", "expected_s", "exposed_s", "compute_s", "memory_s")
    return replace(line, **{name: numpy.where(some, getattr(line, name), 0.0) for name in names})


def _move_lines(
    deployment: Deployment, reading: Reading, sizes: dict[str, Number], bench: KernelBench, hot: Any
) -> list[ServingLine]:
    """Collectives. Those of one kind that partial sums over the same width leave behind travel as one message. An
    exchange with experts is over when the busiest rank has its tokens."""
    mesh, program = bench.mesh, deployment.engine.program
    bundles: dict[tuple[object, ...], tuple[Move, Number]] = {}
    for number, move in enumerate(reading.moves):
        step = move.step
        key = (move.part, step.kind, step.axes) if step.axes == ("width",) else (number,)
        if program.expert_capacity and step.kind == "all_to_all":
            volume = expert_volume(move, sizes["b"] * sizes["t"], bench)
        else:
            array = step.after if step.kind in ("all_gather", "permute") else step.before
            ways = mesh.size(*step.axes) if step.kind == "all_to_all" else 1
            layout = tuple((dim.name, dim.axes) for dim in array.dims)
            own = (ways, *(sizes[name] for name in array.names))
            volume = bench.once(_volume, layout, own, array, ways, sizes, bench)
        bundles[key] = (move, volume + bundles[key][1] if key in bundles else volume)
    lines: list[ServingLine] = []
    for move, volume in bundles.values():
        size = mesh.size(*move.step.axes)
        if not numpy.all(size == 1):
            group = bench.once(deployment.wires.group, move.step.axes, (), move.step.axes)
            if move.what == "expert" and not program.expert_capacity:
                volume = volume * sent_share(move.step, group, sizes.get("x", 1), bench)
            busy = hot if move.what == "expert" and move.step.kind == "all_to_all" else 1.0
            layout = move.step.kind, move.step.axes, move.what
            line = bench.once(_move_line, layout, (volume, busy), deployment, move, volume, group, bench, busy)
            own = {"section": bench.section.name, "times": bench.section.repeat, "part": move.part}
            lines.append(replace(line, what=move.step.before.name, **own))
    return lines


def _move_line(
    deployment: Deployment, move: Move, volume: Number, group: Group, bench: KernelBench, busy: Any
) -> ServingLine:
    step, size = move.step, bench.mesh.size(*move.step.axes)
    sent, count = wire_bytes(step.kind, volume, size), 1.0
    lower = taken = waited = collective_time(step.kind, volume, group, EXACT).bandwidth
    if bench.timed:
        profile = deployment.exchange_network if move.what == "expert" else deployment.network
        profile, full = shared_profile(profile, group), volume * busy
        slow = deployment.engine.collectives.slowdown if _within_node(group) else 1.0
        waited = taken = expected_time(step.kind, full, group, profile, EXACT) * slow
        if (hidden := deployment.engine.experts.hidden) and move.what == "expert":
            # Each half of the batch has an exchange of its own; where that is all latency, batches are not cut.
            halves = 2 * expected_time(step.kind, full / 2, group, profile, EXACT) * slow
            waited = minimum(taken, halves * (1 - hidden))
    if is_array(size):
        numbers = (lower, taken, waited, sent, volume, count)
        lower, taken, waited, sent, volume, count = (where(size <= 1, 0.0, number) for number in numbers)
    times = {"bound_s": lower, "expected_s": taken, "exposed_s": waited}
    moved = {"wire_bytes": sent, "volume": volume, "issued": count}
    return ServingLine("", bench.phase, "", step.kind, step.axes, carries="activation", **moved, **times)


def _within_node(group: Group) -> bool:
    """Whether messages stay under the lowest switches, where engines have collectives of their own."""
    return not isinstance(group, Switches) or bool(numpy.all(group.size * group.stride <= group.levels[0].degree))


def _volume(array: Array, ways: Number, sizes: dict[str, Number], bench: KernelBench) -> Number:
    """Bytes of a move's array as one group of so many sees it, dims never split below one element."""
    held: Number = dtype_bytes(bench.plan.wire) * ways
    for dim in array.dims:
        held = held * local_size(dim.name, sizes[dim.name], bench.mesh.size(*dim.axes))
    return held


def _add_host(cost: IterationCost, deployment: Deployment, known: dict[str, Any], last: Any) -> None:
    """Sampling, what of the host is exposed, and the host's pace where kernels are issued one by one."""
    if not deployment.timed:
        return
    engine, host = deployment.engine, deployment.engine.host
    ways = deployment.mesh.size("data")
    sampled = memory_seconds(last / ways * deployment.model.vocab * host.sample_bytes, deployment.kernels)
    own = host.sequence_s * known["decodes"] + host.prompt_s * known["prompts"]
    own = own + host.token_s * known["prompts"] * known["tokens"]
    cost.host = host.step_s + own / ways
    if host.prompt_step_s:
        cost.host = cost.host + where(known["prompts"] > 0, host.prompt_step_s, 0.0)
    issued = sum(line.issued * line.times for line in cost.lines)
    cost.sampling = host.sample_s + sampled + engine.kernels.gap_s * issued
    rows = known["decodes"] * known["queries"] / deployment.plan.data
    replayed = where(known["prompts"] > 0, host.prompt_graphs, captured(rows, host.graph_sizes) & host.graphs)
    routed = sum(line.times for line in cost.lines if line.term == "experts")
    routed = routed * expert_calls(engine.experts, deployment.plan, deployment.kernels)
    pace = issued * host.kernel_s + routed * host.expert_layer_s + deployment.latent * host.latent_layer_s
    pace = pace + deployment.recurrent * host.recurrent_layer_s
    cost.issuing = where(replayed, 0.0, pace) + host.loop_s + host.loop_sequence_s * known["decodes"] / ways
    cost.streaming = host.token_stream_s * known["streamed"]


def sent_share(step: Step, group: Group, picks: Number, bench: KernelBench) -> Number:
    """The part of the plain volume that an exchange with the experts sends."""
    experts, plain = bench.engine.experts, dtype_bytes(bench.plan.wire)
    if step.kind != "all_to_all":
        return 1.0
    leaves = any(dim.name == "x" and dim.axes for dim in step.after.dims)
    share = experts.dispatch_bytes / plain if leaves else 1.0
    return share * sent_once(picks, group) if experts.dedup and bench.phase == "prefill" else share
