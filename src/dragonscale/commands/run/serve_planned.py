"""What the planner expects of a server: room for KV pages, TTFT, TPOT and tokens per second in a steady state of its
batch."""

from dataclasses import dataclass, replace

from dragonscale.commands.run.serve_order import ServeOrder
from dragonscale.errors import InputError
from dragonscale.physics.hardware import parse_slice
from dragonscale.physics.hardware.driver_names import chip_named
from dragonscale.runtime.server.traffic_record import ServedLoad
from dragonscale.serving.engine.formats import Formats
from dragonscale.serving.engine.launch import LaunchLimits, engine_on
from dragonscale.serving.iteration.capacity import capacity
from dragonscale.serving.iteration.deployment import deploy
from dragonscale.serving.space.frontier import Ask, judge
from dragonscale.serving.space.space import Lot, stack

ENGINE = "dragonscale"
# Tokens of a request where the plan has no traffic.
PROMPT, OUTPUT = 1024, 256


@dataclass(frozen=True)
class PlannedServing:
    """The planner's numbers of one replica, on a slice; `page_bytes` are those of one chip, `tokens` what its KV cache
    has room for, times are of `batch` requests under way, of `prompt` and `output` tokens. `tokens_per_s` is of all
    replicas, each with `mean_batch` requests under way that take those times: in a run with pauses fewer than `batch`,
    which is what requests saw beside them."""

    slice: str
    page_bytes: float
    tokens: float
    batch: int
    mean_batch: float
    prompt: int
    output: int
    ttft_s: float | None
    tpot_s: float | None
    tokens_per_s: float | None


def planned_page_bytes(order: ServeOrder, page: int, on: str = "h100") -> float:
    """Bytes of a page on one chip: the same on every chip, so any stands for one that is not known."""
    plan = replace(order.plan, weights="bf16", compute="bf16", attention="")  # of which the cache knows nothing
    deployment = deploy(order.model, f"{on}:{order.plan.chips}", plan, ENGINE)
    return float(capacity(deployment).per_token * page * deployment.axes.get("data", 1))


def uneven_heads(order: ServeOrder) -> list[str]:
    """That heads do not divide over the chips, which the engine serves though no planner would propose it."""
    tensor, sections = order.plan.tensor, order.model.program().sections
    heads = sorted({section.dims["n"] for section in sections if "n" in section.dims and section.dims["n"] % tensor})
    if not heads:
        return []
    many = " and ".join(map(str, heads))
    return [
        f"{order.model.name} has {many} heads, which tensor={tensor} does not divide: every chip keeps all KV heads "
        "and computes all of their attention."
    ]


def planned_serving(order: ServeOrder, device_kind: str, served: ServedLoad | None = None) -> PlannedServing | None:
    """On the slice that was named or that the plan was made for, or on as many of the devices there are, where that
    chip is known. `served` is the load as it came, instead of the one that the plan was made for."""
    chip = chip_named(device_kind)
    on = order.slice or (f"{chip}:{order.plan.chips}" if chip else "")
    if not on:
        return None
    slice_, first, traffic = parse_slice(on), order.first, order.saved.traffic
    limits = LaunchLimits(first.sequences, first.tokens, first.memory)
    engine = engine_on(ENGINE, slice_.chip, order.model, limits, order.plan.chips, order.plan)
    deployment, plan = deploy(order.model, slice_, order.plan, engine), order.plan
    # what the engine has slots for
    max_batch = first.sequences * plan.data
    batch = order.saved.batch or max_batch
    load = served or ServedLoad(traffic.prompt or PROMPT, traffic.output or OUTPUT, batch, batch)
    ask, batch, mean = Ask(load.prompt, load.output), min(load.seen, max_batch), min(load.mean, max_batch)
    formats = Formats(plan.weights, plan.compute, plan.kv, plan.attention, plan.wire)
    try:
        memory = capacity(deployment)
        configs = judge(order.model, Lot((slice_,), stack([plan], formats, plan.spread)), engine, ask, (batch,))
    except InputError:  # formats that nobody knows kernels or rates of, on that chip
        return None
    state = configs[0].state if configs else None
    return PlannedServing(
        on,
        float(memory.per_token * first.page * deployment.axes.get("data", 1)),
        float(memory.tokens // first.page * first.page),
        batch,
        mean,
        ask.prompt,
        ask.output,
        state and float(state.ttft),
        state and float(state.tpot),
        # from the rate at `batch` to that of the mean load, over all replicas
        state and float(state.tokens) * mean / batch * order.replicas,
    )
