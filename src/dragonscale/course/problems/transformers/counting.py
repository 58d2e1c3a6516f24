"""Problems on counting: FLOPs of einsums, parameters and training FLOPs of a model's parts."""

from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models.flops import Workload, training_flops
from dragonscale.models.letters import simple
from dragonscale.models.load import load_model
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.notation import parse_einsum

D_MODELS = (4096, 2048, 3072, 5120, 6144, 8192, 12288, 16384)
MODELS = (
    "llama3-70b", "llama3-8b", "llama3-405b", "llama2-13b", "llama2-70b", "mistral-7b", "gpt3-175b", "gpt3-13b", "gemma-7b",
    "qwen2.5-72b", "qwen3-8b", "olmo2-13b", "mistral-large-123b", "nemotron4-15b", "phi-4",
)  # fmt: skip


@problem(
    "transformers",
    "FLOPs of a matmul",
    cases=("transformers.vector_matrix_flops:matmul",),
    n=(64, 16, 128, 512, 4096, 8192),
    p=(128, 256, 1024, 4096, 8192),
    m=(32, 64, 1024, 4096, 28672),
)
def flops_of_a_matmul(n: int, p: int, m: int) -> Posed:
    answer = parse_einsum("A[N, P] @ B[P, M] -> C[N, M]").flops({"N": n, "P": p, "M": m})
    return Posed(
        ask=f"How many FLOPs is the matmul A[N, P] · B[P, M] with N = {count(n)}, P = {count(p)}, M = {count(m)}?",
        answer=float(answer),
        dimension="FLOP",
        hints=(
            "Each of the N·M results is a dot product of length P.",
            "A dot product of length P is P multiplications and P additions: 2·N·P·M.",
        ),
        steps=(
            f"results: {count(n)} · {count(m)} = {count(n * m)}",
            f"each costs 2 · {count(p)} = {count(2 * p)} FLOPs",
            f"together {number(answer, 6)} FLOPs",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs, a multiplication and an addition."),
            Trap(3.0 * answer, "Three times as many are forward and backward together; only the matmul was asked."),
        ),
        check=f'dscale calc "2 FLOP * {n} * {p} * {m}"',
    )


@problem(
    "transformers",
    "FLOPs of a contraction",
    cases=("transformers.general_contraction:flops",),
    g=(2, 4, 8),
    i=(4, 6, 12),
    m=(8, 10, 16),
    k=(6, 5, 3),
)
def flops_of_a_contraction(g: int, i: int, m: int, k: int) -> Posed:
    sizes = {"G": g, "H": 3, "I": i, "J": 5, "K": k, "L": 7, "M": m, "N": 9}
    text = "C[G,H,I,J,K,L] @ D[G,H,M,N,K,L] -> E[G,H,I,J,M,N]"
    answer = parse_einsum(text).flops(sizes)
    said = ", ".join(f"{name}={size}" for name, size in sizes.items())
    both = sizes["G"] * sizes["H"] * sizes["K"] * sizes["L"]
    return Posed(
        ask=f"How many FLOPs is C[G,H,I,J,K,L] · D[G,H,M,N,K,L], batched over G and H and summed over K and L, with {said}?",
        answer=float(answer),
        dimension="FLOP",
        hints=(
            "Batch dims and summed dims each count once, though both operands have them.",
            "2 times the product of all dims: 2·G·H·I·J·M·N·K·L.",
        ),
        steps=(
            f"dims of both operands: G·H·K·L = {both}",
            f"dims of one operand: I·J·M·N = {count(answer / 2 / both)}",
            f"2 · {both} · {count(answer / 2 / both)} = {count(answer)}",
        ),
        traps=(
            Trap(answer / 2, "A multiply-add is two FLOPs."),
            Trap(float(answer) * both, "Dims that both operands have count once, not twice."),
        ),
        check=f'dscale roofline "{text}" --on v5e --sizes {said.replace(", ", ",")} | grep "FLOPs  "',
    )


@problem(
    "transformers",
    "Training FLOPs of a matmul",
    cases=("transformers.train_flops_matmul:total",),
    n=(10, 64, 1024, 4096),
    p=(20, 128, 2048, 8192),
    m=(30, 256, 4096, 28672),
)
def training_flops_of_a_matmul(n: int, p: int, m: int) -> Posed:
    forward = parse_einsum("A[N, P] @ B[P, M] -> C[N, M]").flops({"N": n, "P": p, "M": m})
    return Posed(
        ask=f"Forward and backward together, how many FLOPs does C = A[N, P] · B[P, M] cost in training, "
        f"with N = {count(n)}, P = {count(p)}, M = {count(m)}? Both operands need a gradient.",
        answer=3.0 * forward,
        dimension="FLOP",
        hints=("How many matmuls are there backward, and of which sizes?", "2NPM forward, 2 · 2NPM backward: 6NPM."),
        steps=(
            f"forward: 2 · {count(n)} · {count(p)} · {count(m)} = {number(forward, 6)}",
            f"backward: dA = dC · Bᵀ and dB = Aᵀ · dC, each {number(forward, 6)}",
            f"together 3 · {number(forward, 6)} = {number(3 * forward, 6)}",
        ),
        traps=(
            Trap(2.0 * forward, "That is the backward pass alone; forward comes on top."),
            Trap(1.0 * forward, "That is the forward pass alone."),
            Trap(4.0 * forward, "Backward is twice forward, not three times."),
        ),
        check=f'dscale calc "6 FLOP * {n} * {p} * {m}"',
    )


@problem(
    "transformers",
    "Parameters of a model in letters",
    d=D_MODELS,
    layers=(64, 32, 40, 48, 80),
    ratio=(4, 3, 2),
    groups=(1, 4, 8),
    vocab=(32000, 128256, 50304),
)
def parameters_of_a_model(d: int, layers: int, ratio: int, groups: int, vocab: int) -> Posed | None:
    heads, width = d // 128, ratio * d
    if heads % groups:
        return None
    kv = heads // groups
    model = simple(d_model=d, d_ff=width, n_layers=layers, n_heads=heads, n_kv_heads=kv, head_dim=128, vocab=vocab)
    counts = count_parameters(model)
    parts = counts.by_part
    fields = f"hidden_size={d}&intermediate_size={width}&num_hidden_layers={layers}&num_attention_heads={heads}"
    fields += f"&num_key_value_heads={kv}&head_dim=128&vocab_size={vocab}"
    return Posed(
        ask=f"How many parameters has a Transformer with {layers} layers, D = {count(d)}, a gated MLP of F = {count(width)}, "
        f"{heads} query heads and {kv} KV heads of 128, a vocabulary of {count(vocab)}, and embedding and head untied?",
        answer=float(counts.total),
        hints=(
            "Add up the MLP (three matrices), Q, K, V and O, and the vocabulary twice.",
            "L·(3DF + 2D(N+K)H) + 2DV; norms hardly count.",
        ),
        steps=(
            f"MLP: {layers} · 3 · {d} · {width} = {number(parts['mlp'])}",
            f"attention: {layers} · 2 · {d} · ({heads} + {kv}) · 128 = {number(parts['attention'])}",
            f"vocabulary: 2 · {d} · {vocab} = {number(parts['embed'] + parts['head'])}",
            f"together {number(counts.total)}",
        ),
        traps=(
            Trap(float(counts.total - parts["mlp"] / 3), "A gated MLP has three matrices, not two."),
            Trap(float(counts.total - parts["attention"] / 2), "Q, K, V and O: the output projection counts too."),
        ),
        tolerance=0.01,
        check=f'dscale models "llama3-8b?{fields}" --width 120 | grep "^parameters"',
    )


@problem(
    "transformers",
    "How much of a layer is attention?",
    cases=("transformers.q1_attention_fraction:fraction",),
    d=D_MODELS,
    ratio=(4.0, 3.5, 3.0, 2.75, 2.0),
    groups=(1, 2, 4, 8),
)
def attention_share_of_parameters(d: int, ratio: float, groups: int) -> Posed | None:
    heads, width = d // 128, round(ratio * d)
    if heads % groups:
        return None
    kv = heads // groups
    model = simple(d_model=d, d_ff=width, n_layers=1, n_heads=heads, n_kv_heads=kv, head_dim=128, vocab=8)
    parts = count_parameters(model).by_part
    answer = parts["attention"] / (parts["attention"] + parts["mlp"])
    return Posed(
        ask=f"Which share of a layer's matrices are attention's (Q, K, V, O), with D = {count(d)}, a gated MLP of "
        f"F = {count(width)}, {heads} query heads and {kv} KV heads of 128? Answer as a fraction or in percent.",
        answer=answer,
        hints=("Count both halves of the layer.", "2D(N+K)H against 3DF."),
        steps=(
            f"attention: 2 · {d} · ({heads} + {kv}) · 128 = {count(parts['attention'])}",
            f"MLP: 3 · {d} · {width} = {count(parts['mlp'])}",
            f"share: {number(answer, 3)}",
        ),
        traps=(
            Trap(parts["attention"] / parts["mlp"], "That is attention over the MLP; the share is of both together."),
            Trap(parts["attention"] / (parts["attention"] + parts["mlp"] * 2 / 3), "A gated MLP has three matrices."),
        ),
        check=f'dscale calc "A = 2*{d}*({heads}+{kv})*128; M = 3*{d}*{width}; A/(A+M)"',
    )


@problem(
    "transformers",
    "Training FLOPs of attention's projections",
    cases=("transformers.attention_projections:train_flops",),
    batch=(8, 1, 16, 64),
    length=(2048, 4096, 8192),
    d=D_MODELS,
    groups=(4, 1, 8),
)
def training_flops_of_projections(batch: int, length: int, d: int, groups: int) -> Posed | None:
    heads = d // 128
    if heads % groups:
        return None
    kv = heads // groups
    model = simple(d_model=d, d_ff=4 * d, n_layers=1, n_heads=heads, n_kv_heads=kv, head_dim=128, vocab=8)
    answer = training_flops(model.program().sections, Workload(batch, length, length))["attention"]
    return Posed(
        ask=f"How many FLOPs do the projections Q, K, V and O of one layer cost in training, for {batch} sequences of "
        f"{count(length)} tokens, D = {count(d)}, {heads} query heads and {kv} KV heads of 128? Dot products of attention apart.",
        answer=float(answer),
        dimension="FLOP",
        hints=(
            "How many weights do the four projections have?",
            "6 FLOPs for each weight and token: 12·B·T·D·(N+K)·H.",
        ),
        steps=(
            f"weights: 2 · {d} · ({heads} + {kv}) · 128 = {count(2 * d * (heads + kv) * 128)}",
            f"tokens: {batch} · {length} = {count(batch * length)}",
            f"6 · weights · tokens = {amount(answer, 'FLOP')}",
        ),
        traps=(
            Trap(answer / 3, "That is the forward pass; training is three times it."),
            Trap(answer / 2, "Q and O have N heads, K and V have K heads: 2D(N+K)H weights."),
        ),
        check=f'dscale calc "12 FLOP * {batch}*{length}*{d}*({heads}+{kv})*128"',
    )


@problem(
    "transformers",
    "Training FLOPs of the head",
    cases=("transformers.unembed:train_flops",),
    batch=(8, 1, 32, 512),
    length=(2048, 4096, 8192),
    d=D_MODELS,
    vocab=(32000, 128256, 151936, 256000),
)
def training_flops_of_the_head(batch: int, length: int, d: int, vocab: int) -> Posed:
    model = simple(d_model=d, d_ff=d, n_layers=1, n_heads=d // 128, head_dim=128, vocab=vocab)
    answer = training_flops(model.program().sections, Workload(batch, length, length))["head"]
    return Posed(
        ask=f"What do the vocabulary's two matrices cost in training: how many FLOPs are the embedding (a lookup) and the head "
        f"[{count(d)} x {count(vocab)}] together, for {batch} sequences of {count(length)} tokens?",
        answer=float(answer),
        dimension="FLOP",
        hints=("Looking up a row is no matmul.", "The head alone is one: 6·B·T·D·V."),
        steps=(
            "the lookup: no FLOPs",
            f"the head: 6 · {count(batch * length)} tokens · {d} · {vocab}",
            f"= {amount(answer, 'FLOP')}",
        ),
        traps=(
            Trap(2.0 * answer, "12BTDV counts the lookup as a product with one-hot vectors, which nobody computes."),
            Trap(answer / 3, "That is forward alone."),
        ),
        check=f'dscale calc "6 FLOP * {batch}*{length}*{d}*{vocab}"',
    )


@problem(
    "transformers",
    "The MLP's part of a real model",
    model=MODELS,
)
def parameters_of_the_mlp(model: str) -> Posed | None:
    loaded = load_model(model)
    counts = count_parameters(loaded)
    dims = loaded.program().sections[1].dims
    if "mlp" not in counts.by_part or loaded.n_layers != loaded.program().sections[1].repeat:
        return None
    matrices = counts.by_part["mlp"] // (dims["d"] * dims["f"] * loaded.n_layers)
    answer = float(counts.by_part["mlp"])
    return Posed(
        ask=f"How many parameters have the MLPs of {model} ({loaded.n_layers} layers, D = {count(dims['d'])}, "
        f"F = {count(dims['f'])}, {matrices} matrices in each)?",
        answer=answer,
        hints=("Each matrix is D x F, whichever way it points.", f"{matrices}·D·F·L."),
        steps=(
            f"one layer: {matrices} · {dims['d']} · {dims['f']} = {count(answer / loaded.n_layers)}",
            f"{loaded.n_layers} layers: {number(answer)}",
        ),
        traps=(
            Trap(answer / loaded.n_layers, "That is one layer."),
            Trap(float(counts.total), "That is the whole model: attention and the vocabulary count too."),
            Trap(answer * 2 / matrices if matrices == 3 else answer * 1.5, f"This MLP has {matrices} matrices."),
        ),
        check=f'dscale models {model} | grep "^mlp"',
    )
