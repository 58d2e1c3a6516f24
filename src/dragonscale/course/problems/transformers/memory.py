"""Problems on memory: caches, activations with and without recompute, work that chips repeat."""

from dragonscale.course.closed_forms.rules_of_thumb import checkpoint_bytes
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models.letters import simple
from dragonscale.models.load import load_model
from dragonscale.models.transformer import kv_bytes_per_token
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.sharding.algebra import derive
from dragonscale.physics.sharding.mesh import Mesh

SIZES = {"int8": 1, "bf16": 2, "fp8": 1}


@problem(
    "transformers",
    "KV cache of a token",
    cases=("transformers.q1_kv_per_token:bytes",),
    layers=(64, 32, 40, 80),
    heads=(32, 40, 64),
    groups=(1, 4, 8),
    dtype=("int8", "bf16"),
)
def cache_of_a_token(layers: int, heads: int, groups: int, dtype: str) -> Posed:
    kv = heads // groups
    model = simple(d_model=heads * 128, d_ff=128, n_layers=layers, n_heads=heads, n_kv_heads=kv, head_dim=128, vocab=8)
    answer = float(kv_bytes_per_token(model, dtype))
    return Posed(
        ask=f"How many bytes does each token add to the KV cache of a model with {layers} layers, {heads} query heads and {kv} KV heads of "
        f"128, in {dtype}?",
        answer=answer,
        dimension="bytes",
        hints=("Keys and values, in every layer, of KV heads only.", "2·K·H·L numbers."),
        steps=(
            f"numbers: 2 · {kv} · 128 · {layers} = {count(2 * kv * 128 * layers)}",
            f"times {SIZES[dtype]} byte{'s' if SIZES[dtype] > 1 else ''}: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "Keys and values are both kept."),
            Trap(answer / layers, "That is one layer."),
            Trap(answer * groups if groups > 1 else answer * 2, "Only KV heads are kept, in the format that is said."),
        ),
        check=f'dscale calc "2*{kv}*128*{layers} * {SIZES[dtype]} byte"',
    )


@problem(
    "transformers",
    "KV cache of a sequence",
    model=("llama3-70b", "llama3-8b", "llama2-13b", "llama3-405b", "mixtral-8x7b", "qwen3-32b", "llama2-7b"),
    length=(8192, 2048, 32768, 131072),
    dtype=("bf16", "int8"),
)
def cache_of_a_sequence(model: str, length: int, dtype: str) -> Posed:
    loaded = load_model(model)
    dims = loaded.program().sections[1].dims
    answer = float(kv_bytes_per_token(loaded, dtype)) * length
    size = SIZES[dtype]
    groups = dims["n"] / dims["k"]
    return Posed(
        ask=f"How large is the KV cache of one sequence of {count(length)} tokens in {model} ({loaded.n_layers} layers, {dims['n']} query heads, "
        f"{dims['k']} KV heads of {dims['h']}), in {dtype}?",
        answer=answer,
        dimension="bytes",
        hints=("Find the bytes of one token first.", "2·K·H·L·bytes·tokens."),
        steps=(
            f"a token: 2 · {dims['k']} · {dims['h']} · {loaded.n_layers} · {size} = {amount(answer / length, 'bytes')}",
            f"{count(length)} tokens: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "Keys and values are both kept; and how many bytes has the format?"),
            Trap(answer * groups if groups > 1 else answer * 2, "KV heads are kept, not query heads."),
        ),
        check=f'dscale models {model} --seq {length} --kv-dtype {dtype} --width 120 | grep "KV cache"',
    )


@problem(
    "transformers",
    "Activations without recompute",
    cases=("transformers.activation_memory_full:bytes",),
    tokens=(4e6, 1e6, 2e6, 16e6),
    layers=(64, 32, 80, 126),
    d=(8192, 4096, 16384),
    tensors=(20, 16, 12),
)
def activations_without_recompute(tokens: float, layers: int, d: int, tensors: int) -> Posed:
    answer = float(checkpoint_bytes(tokens, [d] * tensors, layers))
    return Posed(
        ask=f"Training keeps {tensors} bf16 tensors of [tokens, D] in each layer for the backward pass. How many bytes are they for a batch of "
        f"{number(tokens)} tokens, {layers} layers and D = {count(d)}?",
        answer=answer,
        dimension="bytes",
        hints=("Every token has its own activations in every layer.", "2 bytes · tensors · tokens · D · L."),
        steps=(
            f"a token in a layer: 2 · {tensors} · {d} = {count(2 * tensors * d)} bytes",
            f"times {number(tokens)} tokens and {layers} layers: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "bf16 has two bytes."),
            Trap(answer / layers, "Every layer keeps its own."),
        ),
        check=f'dscale calc "2 bytes * {tensors} * {tokens:g} * {d} * {layers}"',
    )


@problem(
    "transformers",
    "Activations of the large matmuls",
    cases=("transformers.activation_memory_big_matmuls:bytes",),
    tokens=(4e6, 1e6, 2e6, 8e6),
    layers=(64, 32, 80, 40),
    d=(8192, 4096, 5120),
    ratio=(1.0, 3.5, 4.0, 2.5),
)
def activations_of_matmuls(tokens: float, layers: int, d: int, ratio: float) -> Posed:
    width = round(ratio * d)
    answer = float(checkpoint_bytes(tokens, [d] * 5 + [width] * 2, layers))
    shape = (
        "all seven as wide as the model"
        if ratio == 1
        else f"five of width D = {count(d)}, and two of width F = {count(width)}"
    )
    all_d = float(checkpoint_bytes(tokens, [d] * 7, layers))
    return Posed(
        ask=f"Only what the large matmuls put out is kept for the backward pass: Q, K, V, attention's output, and the MLP's up, gate and down "
        f"({shape}; D = {count(d)}). How many bytes of bf16 are that for {number(tokens)} tokens and {layers} layers?",
        answer=answer,
        dimension="bytes",
        hints=(
            "Seven tensors a layer, each with a value for every token and channel.",
            "2 bytes · tokens · (5D + 2F) · L.",
        ),
        steps=(
            f"channels: 5 · {d} + 2 · {width} = {count(5 * d + 2 * width)}",
            f"2 · {number(tokens)} · {count(5 * d + 2 * width)} · {layers} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "bf16 has two bytes."),
            Trap(all_d if ratio > 1 else answer * 20 / 7, "Which tensors are kept, and how wide is each?"),
        ),
        check=f'dscale calc "2 bytes * {tokens:g} * (5*{d} + 2*{width}) * {layers}"',
    )


@problem(
    "transformers",
    "Work that chips repeat",
    cases=("transformers.q2_total_flops:executed_total",),
    b=(1024, 512, 4096),
    d=(4096, 8192),
    f=(8192, 16384, 28672),
    x=(4, 2, 8),
    z=(4, 2, 8),
)
def work_that_chips_repeat(b: int, d: int, f: int, x: int, z: int) -> Posed:
    mesh = Mesh({"X": x, "Y": 8, "Z": z})
    line = parse_einsum("A[B_X, D_Y] @ W[D_Y, F] -> C[B_X, F]")
    way = next(one for one in derive(line, mesh) if not one.before)
    sizes = {"B": b, "D": d, "F": f}
    answer = float(way.flops(sizes, mesh)) * mesh.chips
    logical = float(line.flops(sizes))
    return Posed(
        ask=f"A[B_X, D_Y] · W[D_Y, F] runs on a mesh of X={x}, Y=8, Z={z}, and nothing is split over Z. How many FLOPs do all chips "
        f"together do, with B = {count(b)}, D = {count(d)}, F = {count(f)}?",
        answer=answer,
        dimension="FLOP",
        hints=("Chips along Z hold the same and do the same.", "2·B·D·F·Z."),
        steps=(
            f"the matmul: 2 · {b} · {d} · {f} = {number(logical)}",
            f"a chip does 1/(X·Y) of it: {number(logical / (x * 8))}",
            f"{mesh.chips} chips: {number(answer)}, {z} times the matmul",
        ),
        traps=(
            Trap(logical, "Each chip along Z repeats the work."),
            Trap(logical / (x * 8), "That is one chip."),
        ),
        check=f'dscale calc "2 FLOP * {b}*{d}*{f}*{z}"',
    )
