"""Pipeline schedules played out event by event: who waits how long, and how many microbatches a rank holds at once.

The player knows nothing of formulas. Each rank has an order of its own, published by those who run it; a piece of
work starts when the rank is free and what it needs has come. What the planner says of bubbles and of memory must be
what is counted here.
"""

from dataclasses import dataclass

import pytest

from dragonscale.training.plan.stages import (
    bubble,
    chunk_sizes,
    held_microbatches,
    held_microbatches_last,
    stage_layers,
)
from tests.training.plans import DENSE, held, job_of, judged


@dataclass(frozen=True)
class Work:
    """A microbatch through one chunk of a rank: `f` forward, `b` backward, `w` the part for the weights where it is
    put off."""

    kind: str
    chunk: int
    microbatch: int


def gpipe(many: int) -> list[Work]:
    return [Work(kind, 0, number) for kind in "fb" for number in range(many)]


def one_forward_one_backward(rank: int, pipe: int, many: int) -> list[Work]:
    return alternating([Work("f", 0, n) for n in range(many)], [Work("b", 0, n) for n in range(many)], pipe - rank - 1)


def interleaved(rank: int, pipe: int, virtual: int, many: int) -> list[Work]:
    """Megatron's order: rounds of `pipe` microbatches through each chunk in turn, backward through the last chunk
    first."""
    rounds = [range(start, start + pipe) for start in range(0, many, pipe)]
    there = [Work("f", chunk, n) for group in rounds for chunk in range(virtual) for n in group]
    back = [Work("b", chunk, n) for group in rounds for chunk in reversed(range(virtual)) for n in group]
    return alternating(there, back, 2 * (pipe - rank - 1) + (virtual - 1) * pipe)


def alternating(there: list[Work], back: list[Work], ahead: int) -> list[Work]:
    """Some forward passes ahead, then one of each in turn, then what is left."""
    ahead = min(ahead, len(there))
    pairs = [work for pair in zip(there[ahead:], back, strict=False) for work in pair]
    return [*there[:ahead], *pairs, *back[len(there) - ahead :]]


def zero_bubble(rank: int, pipe: int, many: int) -> list[Work]:
    """ZB-H1: the later the rank, the more of the weights' parts it puts off, so that all hold as much as the first;
    the backward passes of the end, which wait for each other, find them to do in between."""
    ahead = pipe - rank - 1
    order = [Work("f", 0, number) for number in range(ahead)]
    for number in range(many):
        order += [Work("f", 0, number + ahead)] if number + ahead < many else []
        order += [Work("b", 0, number)]
        order += [Work("w", 0, number - rank)] if number >= rank else []
    return [*order, *(Work("w", 0, number) for number in range(many - rank, many))]


def order_of(schedule: str, rank: int, pipe: int, virtual: int, many: int) -> list[Work]:
    """What a rank does, in order."""
    if schedule == "gpipe":
        return gpipe(many)
    if schedule == "interleaved":
        return interleaved(rank, pipe, virtual, many)
    return (zero_bubble if schedule == "zb-h1" else one_forward_one_backward)(rank, pipe, many)


@dataclass(frozen=True)
class Played:
    """When the last piece of work ends, and the most chunk-microbatches that each rank held at once."""

    seconds: float
    most: list[int]


def play(
    schedule: str, pipe: int, virtual: int, many: int, forward: float, backward: float, weights: float = 0.0
) -> Played:
    """Each rank does its order; a stage is chunk * pipe + rank. `weights` is the part of `backward` that may be put
    off."""
    seconds = {"f": forward, "b": backward - weights, "w": weights}
    frees = "w" if weights else "b"
    orders = [order_of(schedule, rank, pipe, virtual, many) for rank in range(pipe)]
    ends: dict[tuple[str, int, int], float] = {}
    free, held_now, most = [0.0] * pipe, [0] * pipe, [0] * pipe
    last = pipe * virtual - 1
    while any(orders):
        moved = False
        for rank, order in enumerate(orders):
            while order:
                work = order[0]
                stage = work.chunk * pipe + rank
                if work.kind == "f":
                    needs = [("f", stage - 1, work.microbatch)] if stage else []
                elif work.kind == "b":
                    needs = [("f", stage, work.microbatch)]
                    needs += [("b", stage + 1, work.microbatch)] if stage < last else []
                else:
                    needs = [("b", stage, work.microbatch)]
                if any(need not in ends for need in needs):
                    break
                start = max([free[rank], *(ends[need] for need in needs)])
                free[rank] = start + seconds[work.kind] / virtual
                ends[work.kind, stage, work.microbatch] = free[rank]
                held_now[rank] += (work.kind == "f") - (work.kind == frees)
                most[rank] = max(most[rank], held_now[rank])
                order.pop(0)
                moved = True
        assert moved, "the order cannot be run"
    return Played(max(free), most)


@pytest.mark.parametrize(("forward", "backward"), [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize(
    ("schedule", "pipe", "virtual"),
    [
        ("gpipe", 4, 1),
        ("1f1b", 2, 1),
        ("1f1b", 8, 1),
        ("interleaved", 2, 2),
        ("interleaved", 4, 3),
        ("interleaved", 8, 2),
    ],
)
def test_bubbles_and_held_microbatches_are_those_of_the_order_played_out(
    schedule: str, pipe: int, virtual: int, rounds: int, forward: float, backward: float
) -> None:
    many = rounds * pipe
    played = play(schedule, pipe, virtual, many, forward, backward)
    waits = bubble(schedule, pipe, virtual, forward, backward, 0.5 * backward)
    assert played.seconds - many * (forward + backward) == pytest.approx(waits)
    assert played.most[0] / virtual == pytest.approx(held_microbatches(schedule, pipe, virtual, many))
    last = min(held_microbatches_last(schedule, pipe, virtual), many)
    # The last rank of an interleaved pipeline has its other chunks' microbatches too: at least one whole one, never
    # more than the first.
    assert last <= played.most[-1] / virtual <= played.most[0] / virtual
    if virtual == 1:
        assert played.most[-1] == last


@pytest.mark.parametrize("weights", [1.0, 0.75])
@pytest.mark.parametrize(("pipe", "many"), [(2, 4), (4, 8), (4, 12), (8, 24)])
def test_a_pipeline_that_puts_off_weights_waits_less_and_holds_as_much(pipe: int, many: int, weights: float) -> None:
    played = play("zb-h1", pipe, 1, many, 1.0, 1.0 + weights, weights)
    assert played.seconds - (2 + weights) * many == pytest.approx(bubble("zb-h1", pipe, 1, 1.0, 1.0 + weights, weights))
    assert set(played.most) == {held_microbatches("zb-h1", pipe, 1, many)} == {held_microbatches_last("zb-h1", pipe, 1)}


def test_what_is_left_over_goes_to_the_first_chunks_and_among_ends_behind_the_embedding() -> None:
    """Ten layers and two ends are three to each of four chunks; of eleven the one too many lies behind the
    embedding."""
    assert chunk_sizes(10, 4) == [3, 3, 2, 2]
    assert chunk_sizes(10, 4, "ends") == [2, 3, 3, 2]
    assert chunk_sizes(11, 4, "ends") == [2, 4, 3, 2]


def dealt(sizes: list[int], pipe: int) -> list[int]:
    """Layers of each rank, chunk after chunk round the ranks."""
    return [sum(sizes[rank::pipe]) for rank in range(pipe)]


@pytest.mark.parametrize(
    ("layers", "pipe", "virtual", "layout"),
    [
        (32, 4, 2, "even"),
        (30, 4, 2, "even"),
        (30, 4, 2, "ends"),
        (10, 4, 1, "even"),
        (13, 4, 3, "even"),
        (16, 2, 2, "7-1-1-7"),
    ],
)
def test_chunks_go_round_the_ranks(layers: int, pipe: int, virtual: int, layout: str) -> None:
    sizes = chunk_sizes(layers, pipe * virtual, layout)
    assert sum(sizes) == layers
    ranks = dealt(sizes, pipe)
    deal = stage_layers(("block",) * layers, [pipe], [virtual], layout)
    found = [int(one["block"][0]) for one in (deal.first, deal.last, deal.fullest)]
    assert found == [ranks[0], ranks[-1], max(ranks)]
    ends = [size + (place in (0, len(sizes) - 1)) for place, size in enumerate(sizes)] if layout == "ends" else sizes
    assert layout not in ("even", "ends") or max(ends) - min(ends) <= 1


@pytest.mark.parametrize(("schedule", "virtual"), [("1f1b", 1), ("interleaved", 2), ("interleaved", 4), ("zb-h1", 1)])
def test_a_rank_keeps_activations_of_the_microbatches_it_holds(schedule: str, virtual: int) -> None:
    """Of eight ranks with four layers each, the first holds so many whole ranks' worth of microbatches."""
    job = job_of(model=DENSE)
    pipe, plan = 8, "fsdp=2,tensor=4,pipe=8,zero=1"
    each = held(judged("fsdp=16,tensor=4", job, zero=1, microbatch=1, remat="none"), "activations") / DENSE.n_layers
    verdict = judged(plan, job, schedule=schedule, virtual=virtual)
    played = play(schedule, pipe, virtual, 64, 1.0, 2.0, 1.0 if schedule == "zb-h1" else 0.0).most[0]
    # The batch of 256 is 128 microbatches for each pipeline, and for one chip alone several: both hold one sequence
    # of each.
    assert held(verdict, "activations") == pytest.approx(each * 4 * played / virtual, rel=1e-6)
