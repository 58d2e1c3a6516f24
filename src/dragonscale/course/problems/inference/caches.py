"""Problems on the KV cache: what a token keeps, what tricks save, what prefixes and hosts are good for."""

from dragonscale.course.closed_forms.decode_floor import cache_over_weights
from dragonscale.course.closed_forms.serving_fleet import largest_batch
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.inference.machine import size
from dragonscale.course.words import amount, count, number
from dragonscale.models import (
    Attention,
    Layer,
    Mlp,
    Transformer,
    cache_bytes,
    count_parameters,
    kv_bytes_per_token,
    load_model,
    simple,
)
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.physics.hardware import dtype_bytes

MODELS = (
    "llama3-8b", "llama3-70b", "llama3.1-405b", "llama2-13b", "llama2-70b", "qwen2.5-72b", "mixtral-8x7b", "mistral-7b",
)  # fmt: skip


@problem(
    "inference",
    "Bytes that a token leaves behind",
    cases=("inference.q1_params_kv:kv_per_token",),
    layers=(64, 32, 40, 48, 80, 126),
    heads=(8, 4, 16, 32),
    head=(256, 64, 128),
    kv=("int8", "bf16", "fp8"),
)
def cache_of_a_token(layers: int, heads: int, head: int, kv: str) -> Posed:
    model = simple(
        d_model=4096, d_ff=16384, n_layers=layers, n_heads=32, n_kv_heads=heads, head_dim=head, vocab=32128, tied=True
    )
    answer, each = float(kv_bytes_per_token(model, kv)), dtype_bytes(kv)
    return Posed(
        ask=f"A model has {layers} layers, 32 query heads, {heads} KV heads of {head} and a cache in {kv}. How many "
        "bytes of "
        "cache does one token take?",
        answer=answer,
        dimension="bytes",
        hints=("Keys and values, in every layer, for KV heads alone.", "2·bytes·K·H·L."),
        steps=(
            f"keys and values of a layer: 2·{heads}·{head} = {count(2 * heads * head)} numbers",
            f"in {layers} layers, at {each:g} bytes each: {count(answer)} bytes",
        ),
        traps=(
            Trap(answer / 2, "Keys and values: two arrays."),
            Trap(
                answer * 32 / heads if heads != 32 else answer / layers,
                "Count KV heads of all layers, not query heads.",
            ),
        ),
        check=f'dscale calc "2 * {heads} * {head} * {layers} * {each:g} bytes"',
    )


@problem(
    "inference",
    "The cache of a long conversation",
    model=MODELS,
    tokens=(8192, 2048, 4096, 32768, 131072),
    kv=("bf16", "int8"),
)
def cache_of_a_sequence(model: str, tokens: int, kv: str) -> Posed:
    one = load_model(model)
    dims = one.program().sections[1].dims
    answer, each = float(kv_bytes_per_token(one, kv)) * tokens, dtype_bytes(kv)
    k, h, n, layers = dims["k"], dims["h"], dims["n"], one.n_layers
    traps = [Trap(answer / 2, "Keys and values: two arrays.")]
    if n != k:
        traps.append(Trap(answer * n / k, f"Only the {k} KV heads are kept, not the {n} query heads."))
    return Posed(
        ask=f"{model} has {layers} layers, {n} query heads and {k} KV heads of {h}. How large is the KV cache of one "
        "sequence of "
        f"{count(tokens)} tokens in {kv}, every layer keeping all of them?",
        answer=answer,
        dimension="bytes",
        hints=("The bytes of a token, times the tokens.", "2·bytes·K·H·L·T."),
        steps=(
            f"a token: 2·{each:g}·{k}·{h}·{layers} = {count(answer / tokens)} bytes",
            f"times {count(tokens)}: {amount(answer, 'bytes')}",
        ),
        traps=tuple(traps),
        check=f'dscale calc "{model}.kv_bytes_per_token * {each / 2:g} * {tokens}"',
    )


@problem(
    "inference",
    "When caches weigh as much as the model",
    model=("llama2-13b", "llama3-8b", "llama3-70b", "llama3.1-405b", "qwen2.5-72b", "mistral-7b"),
    tokens=(8192, 2048, 4096, 32768),
    weights=("bf16", "int8"),
)
def sequences_as_large_as_weights(model: str, tokens: int, weights: str) -> Posed:
    one = load_model(model)
    params = float(count_parameters(one).total)
    token = float(kv_bytes_per_token(one, "bf16"))
    answer = float(cache_over_weights(token, params, weights)) / tokens
    held = params * dtype_bytes(weights)
    return Posed(
        ask=f"{model} has {amount(params, 'count')} parameters in {weights} and keeps {count(token)} bytes for a "
        "token. How many "
        f"sequences of {count(tokens)} tokens take as many bytes as the weights (not rounded)? Beyond that a "
        "larger batch "
        "mostly reads caches.",
        answer=answer,
        tolerance=0.03,
        hints=("Divide the bytes of the weights by those of a sequence.", "b·P / (kv·S)."),
        steps=(
            f"weights: {size(held)}",
            f"a sequence: {count(token)}·{count(tokens)} = {size(token * tokens)}",
            f"{size(held)} / {size(token * tokens)} = {number(answer)}",
        ),
        traps=(
            Trap(
                answer * (2 if weights == "int8" else 0.5), f"A weight in {weights} is {dtype_bytes(weights):g} bytes."
            ),
            Trap(answer * tokens, "That is tokens; the question asks for sequences."),
        ),
        check=f'dscale calc "{size(held)} / ({token:.0f} bytes * {tokens})"',
    )


@problem(
    "inference",
    "Layers that look back only so far",
    cases=("inference.local_attention_kv",),
    tokens=(32768, 8192, 16384, 65536, 131072),
    window=(1024, 512, 4096, 2048),
    mix=((1, 5), (1, 1), (1, 3), (2, 4), (1, 7)),
)
def cache_of_local_layers(tokens: int, window: int, mix: tuple[int, int]) -> Posed:
    wide, narrow = Attention(32, 8, 128), Attention(32, 8, 128, window=window)
    few, many = mix
    answer = _kept([wide] * few + [narrow] * many, tokens) / _kept([wide] * (few + many), tokens)
    return Posed(
        ask=f"Of every {few + many} layers, {few} attend{'s' if few == 1 else ''} to everything and {many} only to the "
        f"last {count(window)} tokens. At "
        f"{count(tokens)} tokens, what part of the cache of an all-global model is kept (a fraction)?",
        answer=answer,
        hints=("A local layer keeps its window alone.", "(g·S + l·min(S, w)) / ((g + l)·S)."),
        steps=(
            f"kept: {few}·{count(tokens)} + {many}·{count(min(window, tokens))} tokens of layers",
            f"of {few + many}·{count(tokens)}: {number(answer)}",
        ),
        traps=(
            Trap(few / (few + many), "Local layers still keep their windows."),
            Trap(window / tokens, "The global layers keep everything."),
        ),
        check=f'dscale calc "({few}*{tokens} + {many}*min({tokens}, {window})) / ({few + many}*{tokens})"',
    )


def _kept(mixers: list[Attention], tokens: int) -> float:
    model = Transformer("layers", 4096, 32000, tuple(Layer(mixer, Mlp(16384)) for mixer in mixers))
    return float(sum(cache_bytes(model.program().sections, tokens).values()))


@problem(
    "inference",
    "What a cached prefix saves",
    cases=("inference.prefix_cache_saving",),
    lengths=(
        (3, 2),
        (2048, 1536),
        (8192, 2048),
        (4096, 1024),
        (1000, 900),
        (16384, 12000),
        (6000, 4500),
        (512, 128),
        (3000, 1800),
        (10000, 7000),
        (2000, 1500),
        (32768, 8192),
        (1200, 300),
        (5000, 4000),
        (2560, 640),
        (9000, 6000),
        (700, 100),
        (20000, 19000),
        (4000, 3200),
        (1500, 600),
        (8000, 1600),
        (12000, 9600),
        (3072, 768),
        (900, 720),
    ),
)
def prefix_that_is_cached(lengths: tuple[int, int]) -> Posed:
    tokens, shared = lengths
    sections = load_model("llama3-8b").program().sections
    rest, whole = (
        float(forward_flops(sections, Workload(1, queries, tokens))["mlp"]) for queries in (tokens - shared, tokens)
    )
    answer = rest / whole
    return Posed(
        ask=f"A prompt has {count(tokens)} tokens, the first {count(shared)} of which are in the prefix cache. What "
        "fraction of the "
        "MLP's prefill FLOPs is left to do?",
        answer=answer,
        hints=("Linear operations cost the same for every token.", "(n − shared)/n."),
        steps=(
            f"left: {count(tokens)} − {count(shared)} = {count(tokens - shared)} tokens",
            f"of {count(tokens)}: {number(answer)}",
        ),
        traps=(
            Trap(shared / tokens, "That is the part that is saved."),
            Trap(answer**2, "Only attention grows with the square of the length."),
        ),
        check=f'dscale calc "({tokens} - {shared}) / {tokens}"',
    )


@problem(
    "inference",
    "Caches that a host's memory keeps",
    cases=("inference.host_dram_cache:caches_dram",),
    memory=(450, 384, 512, 1024, 1536, 2048),
    cache=(6.71e9, 1.34e9, 2.68e9, 10.7e9, 0.54e9, 5.4e9),
)
def caches_on_the_host(memory: int, cache: float) -> Posed:
    answer = float(largest_batch(memory * 2**30, 0, cache))
    return Posed(
        ask=f"A server has {memory} GiB of DRAM for prefix caches of {amount(cache, 'bytes')} each. How many whole "
        "ones does it "
        "keep?",
        answer=answer,
        whole=True,
        hints=("Mind that GiB are not GB.", "floor(memory / cache), a GiB being 2^30 bytes."),
        steps=(
            f"{memory} GiB = {memory}·2^30 = {number(memory * 2**30)} bytes",
            f"{number(memory * 2**30)} / {number(cache)} = {number(memory * 2**30 / cache)}, so {count(answer)}",
        ),
        traps=(Trap(memory * 1e9 // cache, "A GiB is 2^30 bytes, 7% more than a GB."),),
        check=f'dscale calc "floor({memory}GiB / {size(cache)})"',
    )
