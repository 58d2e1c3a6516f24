"""Where routers send tokens, against drawing the loads."""

import random

import pytest

from dragonscale.errors import InputError
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.kernels import grouped_matmul_seconds, kernel_profile_for
from dragonscale.physics.kernels.routing import busiest, route


def test_balanced_loads_are_equal() -> None:
    load = route(1024, 8, 128, 1, "balanced")
    assert (load.active, load.rows, load.tiles(64), load.tiles(16)) == (128, 8192, 128, 512)
    assert route(1, 8, 128, 1, "balanced").active == 8
    assert route(1, 2, 8, 8, "balanced").active == 1


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 1024])
def test_random_loads_match_drawing_them(tokens: int) -> None:
    draw = random.Random(0)
    active = tiles = 0.0
    for _ in range(50):
        counts = [0] * 64
        for _ in range(tokens):
            for expert in draw.sample(range(64), 4):
                counts[expert] += 1
        active += sum(count > 0 for count in counts) / 50
        tiles += sum(-(-count // 16) for count in counts) / 50
    load = route(tokens, 4, 64, 1, "random")
    assert load.active == pytest.approx(active, rel=0.08)
    assert load.tiles(16) == pytest.approx(tiles, rel=0.12)


@pytest.mark.parametrize("chips", [2, 8])
@pytest.mark.parametrize("tokens", [4, 16, 64, 1024])
def test_the_busiest_of_several_chips_matches_drawing_them(tokens: int, chips: int) -> None:
    draw = random.Random(2)
    active = rows = 0.0
    for _ in range(100):
        counts = [0] * 64
        for _ in range(tokens):
            for expert in draw.sample(range(64), 4):
                counts[expert] += 1
        own = [counts[chip::chips] for chip in range(chips)]
        active += max(sum(count > 0 for count in part) for part in own) / 100
        rows += max(map(sum, own)) / 100
    load = busiest(route(tokens, 4, 64, chips, "random"), 64 / chips, chips)
    assert load.active == pytest.approx(active, rel=0.12)
    assert load.rows == pytest.approx(rows, rel=0.12)


def test_all_chips_wait_for_the_busiest_one() -> None:
    """Slices of every expert are equal work for all; whole experts are not, the less so the larger the batch."""
    h200 = kernel_profile_for(load_chip("h200"))

    def over_mean(tokens: float) -> float:
        shape = (7168.0, 2048.0, 8.0)
        dealt = grouped_matmul_seconds(tokens, *shape, 256.0, "fp8_block", h200, chips=8.0)
        return dealt / grouped_matmul_seconds(tokens, *shape, 256.0, "fp8_block", h200, chips=8.0, routing="balanced")

    assert over_mean(8.0) > 1.2
    assert over_mean(8192.0) < 1.15


@pytest.mark.parametrize("tokens", [1, 4, 16, 64, 1024])
def test_uneven_loads_match_drawing_them(tokens: int) -> None:
    """Experts in exponentially distributed demand; rows that each gets are drawn."""
    draw, active = random.Random(0), 0.0
    for _ in range(100):
        demand = [draw.expovariate(1.0) for _ in range(64)]
        drawn = draw.choices(range(64), demand, k=tokens * 4)
        active += len(set(drawn)) / 100
    load, even = route(tokens, 4, 64, 1, "uneven"), route(tokens, 4, 64, 1, "random")
    assert load.active == pytest.approx(active, rel=0.06)
    assert load.active < even.active
    assert load.rows == even.rows


@pytest.mark.parametrize("tokens", [4, 16, 64, 256, 4096])
@pytest.mark.parametrize("exponent", [1.01, 1.2])
def test_power_laws_match_drawing_them(tokens: int, exponent: float) -> None:
    """Loads drawn from the law, scaled to the rows there are and rounded; rows that rounding leaves over go to experts
    that have none."""
    draw, picks, experts = random.Random(1), 8, 128
    total = tokens * picks
    low, high = (0.01, 2.0) if total <= experts else (1.0, 0.8 * tokens)
    tail = 1 - exponent
    active = 0.0
    for _ in range(100):
        drawn = [((high**tail - low**tail) * draw.random() + low**tail) ** (1 / tail) for _ in range(experts)]
        scale = total / sum(drawn)
        rounded = [round(load * scale) for load in drawn]
        active += min(total, experts, sum(map(bool, rounded)) + max(0, total - sum(rounded))) / 100
    assert route(tokens, picks, experts, 1, exponent).active == pytest.approx(active, rel=0.35)


def test_skew_costs_the_busiest_chip() -> None:
    even, skewed = route(4096, 8, 128, 8, "balanced"), route(4096, 8, 128, 8, 1.2)
    assert 1.2 * even.rows < skewed.rows <= 8 * even.rows
    assert route(4096, 8, 128, 1, 1.2).rows == pytest.approx(even.rows * 8)


@pytest.mark.parametrize("routing", ["fair", 0.0, 2.5])
def test_unknown_routings_are_refused(routing: object) -> None:
    with pytest.raises(InputError, match="There is no routing"):
        route(1, 1, 1, 1, routing)  # pyright: ignore[reportArgumentType]
