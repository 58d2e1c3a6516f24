"""Grouped matmuls in parts, the room that experts have in a run, and memory that runs out told in gigabytes."""

from dataclasses import replace

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from dragonscale.errors import Infeasible  # noqa: E402
from dragonscale.models import load_model  # noqa: E402
from dragonscale.runtime.experts import (  # noqa: E402
    choose,
    combine,
    dispatch,
    expands,
    grouped_matmul,
    multiply,
    slotted,
    tiled,
)
from dragonscale.runtime.numerics import Routing  # noqa: E402
from dragonscale.runtime.quantized import Quantized  # noqa: E402
from dragonscale.runtime.server.building import check_weights, no_room_to_compile  # noqa: E402
from dragonscale.runtime.server.wire import WorkerOrder  # noqa: E402
from dragonscale.runtime.train.loop import memory_errors, no_room  # noqa: E402
from dragonscale.runtime.train.planned import planned  # noqa: E402
from dragonscale.runtime.train.settings import Order, RunSettings, settle_capacity  # noqa: E402
from dragonscale.runtime.xla import is_full  # noqa: E402
from dragonscale.serving.engine.plan import ServingPlan  # noqa: E402
from dragonscale.training.plan.plan_file import parse_plan  # noqa: E402

SIZES = [[3, 0, 9, 1, 7], [0, 0, 20, 0, 0], [4, 4, 4, 4, 4], [2, 1, 0, 0, 5]]
"""Rows of five experts, of 20: uneven, all of one, even, and with rows at the end that are nobody's."""


@pytest.mark.parametrize("rows_at_once", [1, 3, 7, 19])
def test_a_grouped_matmul_in_parts_is_the_whole_one(rows_at_once: int) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    rows, weight = jax.random.normal(keys[0], (20, 6)), jax.random.normal(keys[1], (5, 6, 4))
    slope = jax.random.normal(keys[2], (20, 4))
    most = rows_at_once * 5 * 6 * 4  # bytes of so many rows, spread over five experts

    def value(rows, weight, counts, most):
        found = grouped_matmul(rows, weight, counts, most) * slope
        return jnp.where(jnp.arange(20)[:, None] < counts.sum(), found, 0).sum()

    gradients = jax.jit(jax.value_and_grad(value, (0, 1)), static_argnums=3)
    for sizes in SIZES:
        whole, parts = (gradients(rows, weight, jnp.array(sizes, jnp.int32), room) for room in (None, most))
        for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
            assert jnp.allclose(one, other, atol=1e-5), sizes


@pytest.mark.parametrize("height", [4, 8, 64])
@pytest.mark.parametrize("tokens", [1, 5, 40])
def test_rows_in_tiles_give_what_sorted_rows_give(height: int, tokens: int) -> None:
    """Results and all gradients; of 40 tokens expert 2 has none, and of one token most have none."""
    keys = jax.random.split(jax.random.key(1), 5)
    x, slope = jax.random.normal(keys[0], (1, tokens, 6)), jax.random.normal(keys[1], (1, tokens, 6))
    wide, narrow = jax.random.normal(keys[2], (5, 6, 4)), jax.random.normal(keys[3], (5, 4, 6))
    logits = jax.random.normal(keys[4], (1, tokens, 5)).at[..., 2].add(-100.0)

    def value(x, wide, narrow, logits, height):
        chosen = choose(logits, 2, Routing())
        rows = multiply(dispatch(x, chosen, 5, height), wide)
        rows = multiply(rows.having(jnp.tanh(rows.values)).weighted(), narrow)
        return (combine(rows, chosen) * slope).sum()

    gradients = jax.jit(jax.value_and_grad(value, (0, 1, 2, 3)), static_argnums=4)
    plain, tiled = (gradients(x, wide, narrow, logits, each) for each in (0, height))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(tiled), strict=True):
        assert jnp.allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("tokens", [1, 9])
def test_experts_that_multiply_all_of_few_tokens_give_what_sorted_rows_give(
    tokens: int, biased: bool, narrow: bool
) -> None:
    """With a bias the router's weights come after the last matmul; of experts split over two chips each adds its
    own."""
    keys = jax.random.split(jax.random.key(2), 4)
    x, logits = jax.random.normal(keys[0], (1, tokens, 6)), jax.random.normal(keys[1], (1, tokens, 8))
    chosen, bias = choose(logits, 2, Routing()), jnp.arange(8.0)[:, None] * jnp.ones(6)
    wide, narrowing = (
        jax.random.normal(key, (8, *shape)) for key, shape in zip(keys[2:], [(6, 4), (4, 6)], strict=True)
    )

    def weight(values, part):
        values = values[part]
        scale = jnp.full((values.shape[0], values.shape[2]), 1 / 16)
        return Quantized(jnp.round(values * 16).astype(jnp.int8), scale) if narrow else values

    def made(rows, part=slice(None)):
        rows = multiply(rows, weight(wide, part))
        rows = multiply(rows.having(jnp.tanh(rows.values)), weight(narrowing, part), last=not biased)
        return combine(rows.having(rows.values + bias[part][rows.experts]) if biased else rows, chosen)

    @jax.jit
    def ways(x):
        halves = [made(slotted(x, chosen, 4, 4 * at), slice(4 * at, 4 * at + 4)) for at in range(2)]
        alone = made(slotted(x, chosen, 8)), made(slotted(x, chosen, 8, whole=True))
        return made(dispatch(x, chosen, 8)), *alone, sum(halves)

    whole, *others = ways(x)
    assert all(jnp.allclose(other, whole, atol=1e-5) for other in others)


def test_a_tile_has_one_expert() -> None:
    sizes = jnp.array([3, 0, 9, 8, 0], jnp.int32)
    tiles = tiled(sizes, jnp.repeat(jnp.arange(5), sizes, total_repeat_length=20), 8)
    assert tiles.owner.tolist() == [0, 2, 2, 3, -1, -1, -1]  # room for five experts that each begin a tile
    assert tiles.places.tolist() == [*range(3), *range(8, 17), *range(24, 32)]
    assert tiles.heights.tolist() == [8, 0, 16, 8, 0]


def test_rows_are_spread_over_experts_a_part_at_a_time() -> None:
    """What XLA makes of a part on a GPU, rows for each expert, stays below the limit; without parts it
    is all at once."""

    def most_rows(limit: int | None) -> int:
        shapes = (jax.ShapeDtypeStruct((1024, 16), jnp.bfloat16), jax.ShapeDtypeStruct((8, 16, 32), jnp.bfloat16))
        traced = jax.make_jaxpr(lambda rows, weight, sizes: grouped_matmul(rows, weight, sizes, limit))(
            *shapes, jax.ShapeDtypeStruct((8,), jnp.int32)
        )
        found: list[int] = []
        inside = [traced.jaxpr]
        while inside:
            for equation in inside.pop().eqns:
                if equation.primitive.name.startswith("ragged_dot"):
                    found.append(equation.invars[0].aval.shape[0])
                inside += [each.jaxpr for each in equation.params.values() if hasattr(each, "jaxpr")]
        return max(found)

    assert most_rows(None) == 1024
    for limit in (2**14, 2**14 + 500, 2**16 - 1):  # also such that parts do not come out even
        assert most_rows(limit) * 8 * 32 * 2 <= limit


def order_for(model: str, **settings: object) -> Order:
    run = RunSettings(data=("-",), steps=1, batch=16, seq=4096, dtype="bf16")
    return Order(model, "h200:1", parse_plan("microbatch=8 zero=0 remat=none"), replace(run, **settings))


def test_experts_have_the_room_that_was_planned_where_no_kernel_groups_rows() -> None:
    order = order_for("qwen3-30b-a3b")
    assert settle_capacity(order, expands=True).run.capacity == 1
    assert settle_capacity(order, expands=False).run.capacity == 0
    for said in (1.5, 0.0):  # 0 is dropless, and no less said
        order = order_for("qwen3-30b-a3b", capacity=said)
        assert settle_capacity(order, expands=True) == order


@pytest.mark.parametrize(
    ("model", "backend", "kernel", "found"),
    [
        ("qwen3-30b-a3b", "gpu", True, False),
        ("qwen3-30b-a3b", "gpu", False, True),
        ("qwen3-30b-a3b", "tpu", False, False),
        ("gpt-oss-20b", "gpu", True, True),  # matrices of 2,880, which whole blocks do not divide
        ("llama3-8b", "gpu", False, False),
    ],
)
def test_where_rows_are_spread_over_all_experts(
    model: str, backend: str, kernel: bool, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr("dragonscale.runtime.experts.has_kernel", lambda: kernel)
    assert expands(load_model(model).program()) == found


def test_the_plan_beside_a_run_has_the_room_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model("qwen3-30b-a3b")
    wide, even = (planned(order_for(model.name, capacity=room), model) for room in (2.0, 1.0))
    assert wide is not None
    assert even is not None
    assert wide.hbm_bytes > even.hbm_bytes
    assert wide.step_s > even.step_s
    grouped = planned(order_for(model.name, capacity=0.0), model)
    assert grouped is not None
    assert not grouped.remarks
    monkeypatch.setattr("dragonscale.runtime.train.planned.expands", lambda _: True)
    dropless = planned(order_for(model.name, capacity=0.0), model)
    assert dropless is not None
    assert any("all experts" in one for one in dropless.remarks)
    assert not even.remarks


NO_KERNEL = (
    "NOT_FOUND: Failed to get configs for: 3 out of 175 instructions.\nRESOURCE_EXHAUSTED: Out of memory while "
    "trying to allocate 73014444032 bytes."
)


def test_memory_that_runs_out_is_told_in_gigabytes() -> None:
    order, model = order_for("qwen3-0.6b"), load_model("qwen3-0.6b")
    said = no_room(order, model, NO_KERNEL, "NVIDIA H200", 142.6e9)
    assert "142.6 GB" in said
    assert "73.0 GB at once" in said
    assert "smaller microbatch" in said
    assert "NOT_FOUND" not in said
    assert f"{planned(order, model).hbm_bytes / 1e9:.1f} GB" in said  # pyright: ignore[reportOptionalMemberAccess]


def test_only_full_memory_is_told_so() -> None:
    class Device:
        device_kind = "NVIDIA H200"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 10**11}

    order, model = order_for("qwen3-0.6b"), load_model("qwen3-0.6b")
    full, other = (jax.errors.JaxRuntimeError(text) for text in (NO_KERNEL, "INTERNAL: something else"))
    assert is_full(full)
    assert not is_full(other)
    assert not is_full(ValueError("Out of memory"))
    assert not is_full(jax.errors.JaxRuntimeError(NO_KERNEL.splitlines()[0]))
    with pytest.raises(Infeasible, match=r"100\.0 GB"), memory_errors(order, model, Device()):
        raise full
    with (
        pytest.raises(Infeasible, match="no lack of memory: 'INTERNAL: something else'"),
        memory_errors(order, model, Device()),
    ):
        raise other


def test_a_server_without_memory_to_compile_in_says_what_takes_it() -> None:
    class Device:
        device_kind = "NVIDIA H200"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_in_use": 130 * 10**9}

    order = WorkerOrder(model="qwen3-30b-a3b", plan="tensor=1", tokens=2048, memory=0.9)
    said = no_room_to_compile(Device(), order, 40_000, 65e9, NO_KERNEL)
    for part in ("NVIDIA H200", "2,048 tokens", "73.0 GB at once", "65.0 GB", "40,000 pages", "--memory-fraction"):
        assert part in said
    assert "NOT_FOUND" not in said


def test_weights_that_do_not_fit_are_told_before_they_are_read() -> None:
    class Device:
        device_kind = "NVIDIA H200"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 2 * 10**9}

    mesh = jax.make_mesh((1,), ("tensor",))
    laid = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("tensor"))
    tree = {"w": [jax.ShapeDtypeStruct((10**9,), jnp.bfloat16, sharding=laid)]}
    check_weights(Device(), ServingPlan(), tree)  # 2.0 GB
    tree["w"] *= 2
    with pytest.raises(Infeasible, match=r"take 4\.0 GB of each device .* NVIDIA H200 lets a program have 2\.0 GB"):
        check_weights(Device(), ServingPlan(), tree)
