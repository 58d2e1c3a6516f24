"""Collectives of an iteration as lines of its ledger: activations between tensor ranks, tokens to their experts and
back, the residual stream between pipeline stages.

Written plainly, a token's whole width goes to each of its experts in the format of activations, and each expert's
result comes back. Libraries for large expert parallelism send less: tokens leave in fp8 (`dispatch_bytes` of 1), and in
prefill (`dedup`) a token goes only once to every node, or to every chip inside one, that has several of its experts. Of
n such places, k experts picked at random lie in n·(1 − (1 − 1/n)^k).
"""

from dataclasses import replace

import numpy

from dragonscale.physics.collectives import collective_time, wire_bytes
from dragonscale.physics.collectives.group import Group, Switches
from dragonscale.physics.collectives.profile import expected_time, shared_profile
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.notation import Array
from dragonscale.physics.numbers import Number, is_array, maximum, minimum, where
from dragonscale.physics.sharding.layout import local_size
from dragonscale.physics.sharding.reshard_step import Step
from dragonscale.plan.reader import Move, Reading
from dragonscale.serving.iteration.compiled import expert_volume
from dragonscale.serving.iteration.deployment import Deployment
from dragonscale.serving.iteration.iteration import ServingLine
from dragonscale.serving.iteration.kernel_times import KernelBench
from dragonscale.training.cost.move_times import EXACT, sent_once


def move_lines(
    deployment: Deployment, reading: Reading, sizes: dict[str, Number], bench: KernelBench, hot: Number
) -> list[ServingLine]:
    """The collectives of a section.

    Partial sums over the same `width` axis are reduced in one message. An exchange with experts ends when the busiest
    rank, with `hot` times the mean load, has its tokens.
    """
    mesh, program = bench.mesh, deployment.engine.program
    bundles: dict[tuple[object, ...], tuple[Move, Number]] = {}
    for index, move in enumerate(reading.moves):
        step = move.step
        key = (move.part, step.kind, step.axes) if step.axes == ("width",) else (index,)
        if program.expert_capacity and step.kind == "all_to_all":
            volume = expert_volume(move, sizes["b"] * sizes["t"], bench)
        else:
            # the larger side of the collective, as one group sees it
            array, ways = step.before, 1
            if step.kind in ("all_gather", "permute"):
                array = step.after
            elif step.kind == "all_to_all":
                ways = mesh.size(*step.axes)
            layout = tuple((dim.name, dim.axes) for dim in array.dims)
            volume_sizes = (ways, *(sizes[name] for name in array.names))
            volume = bench.once(_volume, layout, volume_sizes, array, ways, sizes, bench)
        if key in bundles:
            volume = volume + bundles[key][1]
        bundles[key] = (move, volume)
    lines: list[ServingLine] = []
    for move, volume in bundles.values():
        step = move.step
        if numpy.all(mesh.size(*step.axes) == 1):
            continue
        group = bench.once(deployment.wires.group, step.axes, (), step.axes)
        busy: Number = 1.0
        if move.what == "expert":
            if not program.expert_capacity:
                volume = volume * sent_share(step, group, sizes.get("x", 1), bench)
            if step.kind == "all_to_all":
                busy = hot
        layout = step.kind, step.axes, move.what
        line = bench.once(_move_line, layout, (volume, busy), deployment, move, volume, group, bench, busy)
        section = bench.section
        lines.append(replace(line, what=step.before.name, section=section.name, times=section.repeat, part=move.part))
    return lines


def _move_line(
    deployment: Deployment, move: Move, volume: Number, group: Group, bench: KernelBench, busy: Number
) -> ServingLine:
    """The line of one collective of `volume` bytes, without section and name, which equal moves do not share."""
    step, size = move.step, bench.mesh.size(*move.step.axes)
    sent, issued = wire_bytes(step.kind, volume, size), 1.0
    bound = expected = exposed = collective_time(step.kind, volume, group, EXACT).bandwidth
    if bench.timed:
        profile = deployment.exchange_network if move.what == "expert" else deployment.network
        profile, busiest = shared_profile(profile, group), volume * busy
        slowdown = 1.0
        if _within_node(group):
            slowdown = deployment.engine.collectives.slowdown
        exposed = expected = expected_time(step.kind, busiest, group, profile, EXACT) * slowdown
        if (hidden := deployment.engine.experts.hidden) and move.what == "expert":
            # Two-batch overlap: each half of the batch has an exchange of its own. Batches are not cut where latency
            # makes that slower.
            halves = 2 * expected_time(step.kind, busiest / 2, group, profile, EXACT) * slowdown
            exposed = minimum(expected, halves * (1 - hidden))
    if is_array(size):
        # plans of the batch in which the axis has one chip move nothing
        columns = (bound, expected, exposed, sent, volume, issued)
        bound, expected, exposed, sent, volume, issued = (where(size <= 1, 0.0, column) for column in columns)
    return ServingLine(
        "",
        bench.phase,
        "",
        step.kind,
        step.axes,
        carries="activation",
        wire_bytes=sent,
        volume=volume,
        issued=issued,
        bound_s=bound,
        expected_s=expected,
        exposed_s=exposed,
    )


def _within_node(group: Group) -> bool:
    """Whether messages stay under the lowest switches, where engines have collectives of their own."""
    return not isinstance(group, Switches) or bool(numpy.all(group.size * group.stride <= group.levels[0].degree))


def _volume(array: Array, ways: Number, sizes: dict[str, Number], bench: KernelBench) -> Number:
    """Bytes of a move's array as one group of `ways` chips sees it; no dim is split below one element."""
    volume: Number = dtype_bytes(bench.plan.wire) * ways
    for dim in array.dims:
        volume = volume * local_size(dim.name, sizes[dim.name], bench.mesh.size(*dim.axes))
    return volume


def sent_share(step: Step, group: Group, picks: Number, bench: KernelBench) -> Number:
    """The fraction of the plain volume that an exchange with experts sends; each token picks `picks` of them."""
    experts, plain = bench.engine.experts, dtype_bytes(bench.plan.wire)
    if step.kind != "all_to_all":
        return 1.0
    # dim x, a token's picks, is only split on the way to the experts
    to_experts = any(dim.name == "x" and dim.axes for dim in step.after.dims)
    share = experts.dispatch_bytes / plain if to_experts else 1.0
    if experts.dedup and bench.phase == "prefill":
        return share * sent_once(picks, group)
    return share


def hop_line(deployment: Deployment, tokens: Number, phase: str) -> ServingLine:
    """The residual stream of one part on its way from stage to stage.

    Every chip sends a share of the rows to its counterpart and the receivers gather them (vLLM's `send_tensor_dict`). A
    part waits for its own hops, however many other parts are on their way.
    """
    mesh, stages, head = deployment.mesh, deployment.plan.pipe, deployment.sections[-1].dims
    rows = maximum(tokens / mesh.size("data", "context"), 1.0)
    volume = rows * head["d"] * dtype_bytes(deployment.plan.wire) / mesh.size("width", "expert", "tensor", "share")
    group = deployment.wires.group(("pipe",))
    bound = expected = collective_time("permute", volume, group, EXACT).bandwidth
    if deployment.timed:
        expected = expected_time("permute", volume, group, shared_profile(deployment.network, group), EXACT)
    return ServingLine(
        "step",
        phase,
        "R",
        "permute",
        ("pipe",),
        stages - 1,
        carries="activation",
        wire_bytes=volume,
        volume=volume,
        issued=2.0,  # a send and a gather
        bound_s=bound,
        expected_s=expected,
        exposed_s=expected,
    )
