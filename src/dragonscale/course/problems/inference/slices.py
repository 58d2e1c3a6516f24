"""Problems on what fits: parameters, slices, batches."""

import math

from dragonscale.course.closed_forms.decode_floor import linear_cost
from dragonscale.course.closed_forms.serving_fleet import free_bytes, largest_batch
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import CHIPS, TPUS, size
from dragonscale.course.words import amount, count, number
from dragonscale.models import count_parameters, simple
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.serving.space import smallest_slice


@problem(
    "inference",
    "Parameters of a model from its letters",
    cases=("inference.q1_params_kv:params",),
    layers=(64, 32, 40, 48, 80),
    width=(4096, 5120, 8192),
    heads=((32, 8), (64, 8), (40, 40), (32, 32)),
    head=(256, 128),
    vocab=(32128, 128256),
)
def parameters_from_letters(layers: int, width: int, heads: tuple[int, int], head: int, vocab: int) -> Posed:
    n, k = heads
    hidden = 4 * width
    model = simple(
        d_model=width, d_ff=hidden, n_layers=layers, n_heads=n, n_kv_heads=k, head_dim=head, vocab=vocab, tied=True
    )
    answer = float(count_parameters(model).total)
    mlp, mixer = 3 * width * hidden, 2 * width * head * (n + k)
    return Posed(
        ask=f"How many parameters has a Transformer with {layers} layers, D = {count(width)}, a gated MLP (three "
        "matrices) of F = "
        f"{count(hidden)}, {n} query and {k} KV heads of {head}, and a vocabulary of {count(vocab)} whose "
        "embedding is shared by input and "
        "output?",
        answer=answer,
        hints=("Three matrices of the MLP, four of attention, one embedding.", "L·D·(3·F + 2·H·(N + K)) + D·V."),
        steps=(
            f"MLP of a layer: 3·{width}·{hidden} = {number(mlp)}",
            f"attention of a layer: 2·{width}·{head}·({n} + {k}) = {number(mixer)}",
            f"{layers}·({number(mlp)} + {number(mixer)}) + {width}·{vocab} = {amount(answer, 'count')}",
        ),
        traps=(
            Trap(answer - layers * width * hidden, "A gated MLP has three matrices."),
            Trap(answer * 2, "That would be its bytes in bf16."),
        ),
        check=f'dscale calc "{layers}*{width}*(3*{hidden} + 2*{head}*({n} + {k})) + {width}*{vocab}"',
    )


@problem(
    "inference",
    "The largest batch that fits",
    cases=("inference.table_mha_13b_max_batch:max_batch_16GB",),
    weights=(26e9, 16e9, 13e9, 70e9, 140e9),
    cache=(6.711e9, 1.342e9, 0.671e9, 2.684e9),
    chip=CHIPS,
    chips=(8, 4, 16, 2),
)
def batch_beside_the_weights(weights: float, cache: float, chip: str, chips: int) -> Posed | None:
    machine = load_chip(chip)
    memory = chips * machine.hbm.capacity
    if not 10 <= (memory - weights) / cache < 400:
        return None
    answer = float(largest_batch(memory, weights, cache))
    return Posed(
        ask=f"{chips} {chip} have {amount(machine.hbm.capacity, 'bytes')} of HBM each. The weights take "
        f"{amount(weights, 'bytes')} in all, a "
        f"sequence's cache {amount(cache, 'bytes')}. How many whole sequences fit beside the weights?",
        answer=answer,
        whole=True,
        hints=("What is left of all chips' memory, over a cache.", "floor((N·HBM − weights) / cache)."),
        steps=(
            f"free: {chips}·{amount(machine.hbm.capacity, 'bytes')} − {amount(weights, 'bytes')} = "
            f"{size(memory - weights)}",
            f"{size(memory - weights)} / {size(cache)} = {number((memory - weights) / cache)}, so {count(answer)}",
        ),
        traps=(Trap(float(memory // cache), "The weights take their part."),),
        check=f'dscale calc "largest_batch({chips} * {chip}.hbm, {size(weights)}, {size(cache)})"',
    )


@problem(
    "inference",
    "The smallest slice that holds a model",
    cases=("inference.q6_2_moe_min_slice:int8_chips",),
    params=(211.66e9, 70e9, 405e9, 671e9, 120e9, 30e9, 46.7e9),
    weights=("int8", "bf16", "int4"),
    chip=TPUS,
)
def smallest_slice_of_weights(params: float, weights: str, chip: str) -> Posed | None:
    machine = load_chip(chip)
    held = float(linear_cost(1, params, weights).bytes["hbm"])
    piece = smallest_slice(machine, held)
    ways = held / machine.hbm.capacity
    if piece is None or ways < 1.2 or piece.chips != 2 ** math.ceil(math.log2(ways)):
        return None
    answer = float(piece.chips)
    return Posed(
        ask=f"Slices of {chip} have 4, 8, 16, 32, 64, … chips of {amount(machine.hbm.capacity, 'bytes')} each. How "
        "many chips has the smallest "
        f"that holds {amount(params, 'count')} parameters in {weights}?",
        answer=answer,
        whole=True,
        hints=(
            "Bytes of the weights over bytes of a chip, then up to the next slice.",
            "bytes·P / HBM, up to a power of two.",
        ),
        steps=(
            f"{number(params)}·{dtype_bytes(weights):g} = {amount(held, 'bytes')}",
            f"{amount(held, 'bytes')} / {amount(machine.hbm.capacity, 'bytes')} = {number(ways)} chips",
            f"the next slice has {piece.chips}",
        ),
        traps=(
            Trap(answer / 2, "That slice is too small."),
            Trap(answer * 2, "Half of that holds them already."),
        ),
        check=f'dscale calc "2 ** ceil(log2({size(held)} / {chip}.hbm))"',
    )


@problem(
    "inference",
    "Memory that is left on each chip",
    cases=("inference.q6_1_moe_load:int8_free",),
    params=(211.66e9, 70e9, 405e9, 120e9, 30e9),
    weights=("int8", "bf16", "int4"),
    chip=CHIPS,
    chips=(128, 8, 16, 32, 64),
)
def memory_left_on_a_chip(params: float, weights: str, chip: str, chips: int) -> Posed | None:
    machine = load_chip(chip)
    held = float(linear_cost(1, params, weights).bytes["hbm"]) / chips
    answer = float(free_bytes(machine.hbm.capacity, held))
    if answer < 0.1 * machine.hbm.capacity:
        return None
    return Posed(
        ask=f"{amount(params, 'count', 5)} parameters in {weights} are split evenly over {chips} {chip} of "
        f"{amount(machine.hbm.capacity, 'bytes')}. "
        "How much memory is left on each chip for caches?",
        answer=answer,
        dimension="bytes",
        tolerance=0.01,
        hints=("Each chip holds its part of the weights.", "HBM − bytes·P/N."),
        steps=(
            f"a chip's part: {number(params, 5)}·{dtype_bytes(weights):g} / {chips} = {amount(held, 'bytes')}",
            f"{amount(machine.hbm.capacity, 'bytes')} − {amount(held, 'bytes')} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(held, "That is what the weights take."),
            Trap(machine.hbm.capacity, "Each chip's part of the weights takes room."),
            Trap(
                machine.hbm.capacity - held / dtype_bytes(weights) * (2 if weights != "bf16" else 1),
                f"A weight in {weights} is {dtype_bytes(weights):g} bytes.",
            ),
        ),
        check=f'dscale calc "{chip}.hbm - {size(held * chips)} / {chips}"',
    )
