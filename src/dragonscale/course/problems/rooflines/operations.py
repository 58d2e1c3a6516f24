"""Other operations under the same roof: dot products, elementwise work, attention, batched matmuls."""

from dragonscale.course.closed_forms.costs import attention_cost
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.problems.rooflines.chip_facts import CHIPS, has_format, peak_and_hbm, told
from dragonscale.course.words import amount, count, number, some
from dragonscale.physics.hardware import dtype_bytes, load_chip
from dragonscale.physics.notation import parse_einsum
from dragonscale.physics.rooflines import attainable, einsum_cost, rates_of, roofline
from dragonscale.physics.rooflines.expression import Operation, flops_per_element, parse_operation


@problem(
    "rooflines",
    "Intensity of a dot product",
    cases=("roofline.dot_product_intensity:intensity",),
    length=(1024, 4096, 65536, 1000000, 512),
    dtype=("bf16", "fp32", "int8"),
)
def dot_product_intensity(length: int, dtype: str) -> Posed:
    line = parse_einsum(f"{dtype}[N] @ {dtype}[N] -> {dtype}[]")
    cost = einsum_cost(line, {"N": length}, exact=True)
    answer, each = float(cost.intensity()), float(dtype_bytes(dtype))
    return Posed(
        ask=f"x · y with two {dtype} vectors of {count(length)} elements: how many FLOPs for each byte of HBM? "
        f"Count {length:,} multiplications, one addition less, two vectors read and one number written.",
        answer=answer,
        hints=("Count FLOPs and bytes as the question says.", "(2N - 1) / (bytes per element · (2N + 1))."),
        steps=(
            f"FLOPs = 2·{length} - 1 = {count(float(cost.total_flops))}",
            f"bytes = {each:g}·(2·{length} + 1) = {count(float(cost.bytes['hbm']))}",
            f"intensity = {number(answer)}, near 1/{each:g}",
        ),
        traps=(
            Trap(answer / 2, "A multiplication and an addition for each pair: two FLOPs."),
            Trap(2 * answer, "Both vectors are read."),
        ),
        check=f'dscale calc "(2*{length} - 1) / ({each:g} * (2*{length} + 1))"',
    )


@problem(
    "rooflines",
    "How fast a dot product can be",
    chip=CHIPS,
    dtype=("bf16", "int8"),
)
def dot_product_rate(chip: str, dtype: str) -> Posed | None:
    if not has_format(chip, dtype):
        return None
    _, peak, hbm = peak_and_hbm(chip, dtype)
    each = float(dtype_bytes(dtype))
    answer = float(attainable(1 / each, peak, hbm))
    return Posed(
        ask=f"Which FLOP/s does a long dot product of two {dtype} vectors in HBM reach at best? {told(chip, dtype)}.",
        answer=answer,
        dimension="FLOP/s",
        hints=(
            "Its intensity is far below C/W, so memory binds.",
            "rate = intensity · W; the intensity is 2N/(2N·bytes).",
        ),
        steps=(
            f"intensity = 2 FLOPs / (2 · {each:g} bytes) = {1 / each:g}",
            f"{1 / each:g} · {number(hbm)} = {amount(answer, 'FLOP/s')}",
        ),
        traps=(
            Trap(peak, "The matrix units wait for bytes nearly all of the time."),
            Trap(2 * answer, "Two vectors are read for every two FLOPs an element."),
        ),
        check=f'dscale roofline "{dtype}[N] @ {dtype}[N] -> {dtype}[]" --on {chip} --sizes N=1000000000',
    )


@problem(
    "rooflines",
    "An elementwise function",
    chip=CHIPS,
    function=("gelu", "softmax", "rmsnorm", "silu", "relu"),
    rows=(8192, 1024, 4096, 65536),
    columns=(8192, 28672, 4096),
)
def elementwise_time(chip: str, function: str, rows: int, columns: int) -> Posed | None:
    made, vector, hbm = load_chip(chip), float(load_chip(chip).peak("fp32", "vector")), peak_and_hbm(chip)[2]
    operation = parse_operation(f"{function}(bf16[B,F])")
    assert isinstance(operation, Operation)
    found = roofline(operation.cost({"B": rows, "F": columns}), rates_of(made))
    each = flops_per_element(function)
    load_s, math_s, answer = float(found.seconds["hbm"]), float(found.seconds["vector"]), float(found.lower)
    if answer != load_s:
        return None
    return Posed(
        ask=f"{function} of a bf16[{rows}, {columns}] array in HBM, the result in bf16 back to HBM, {some(each, 'FLOP')} an element "
        f"on the vector unit at {amount(vector, 'FLOP/s')}. HBM moves {amount(hbm, 'bytes/s')}. How long at best?",
        answer=answer,
        dimension="s",
        hints=(
            "Compare what the vector unit and HBM take; nearly always HBM is the longer.",
            "T = max(FLOPs/C_vector, (read + written)/W).",
        ),
        steps=(
            f"bytes = 2·2·{rows}·{columns} = {count(load_s * hbm)}, {amount(load_s, 's')}",
            f"FLOPs = {each}·{rows}·{columns}, {amount(math_s, 's')}",
            f"the longer: {amount(answer, 's')}",
        ),
        traps=(
            Trap(load_s / 2, "The result is written as well as the operand read."),
            Trap(math_s, "The vector unit waits for HBM."),
        ),
        check=f'dscale roofline "{function}(bf16[{rows},{columns}])" --on {chip}',
    )


@problem(
    "rooflines",
    "Decode attention",
    chip=CHIPS,
    batch=(8, 1, 32, 128),
    context=(8192, 2048, 32768, 131072),
    heads=((64, 8), (32, 8), (32, 32), (128, 8), (64, 4)),
)
def decode_attention_time(chip: str, batch: int, context: int, heads: tuple[int, int]) -> Posed:
    query, cached = heads
    _, peak, hbm = peak_and_hbm(chip)
    cost = attention_cost(batch, 1, context, cached, query // cached, 128)
    found = roofline(cost, rates_of(load_chip(chip)))
    answer, math_s = float(found.lower), float(found.seconds["matrix"])
    traps = [Trap(math_s, "Every FLOP needs a byte of the cache; that is the longer time.")]
    if cached != query:
        many = roofline(attention_cost(batch, 1, context, query, 1, 128), rates_of(load_chip(chip)))
        traps.append(Trap(float(many.lower), f"Only {cached} KV heads are cached; query heads share them."))
    traps.append(Trap(answer / 2, "Keys and values are both read."))
    return Posed(
        ask=f"One layer of decode attention: {some(batch, 'sequence')}, one query token each, {count(context)} cached tokens, "
        f"{query} query heads, {cached} KV heads of 128, all bf16, every array through HBM once. "
        f"How long at best? {told(chip)}.",
        answer=answer,
        dimension="s",
        hints=(
            "Keys and values are read once; one token's query and result hardly count.",
            "T_hbm = 2·2·B·S·K·H/W, against T_math = 4·B·S·N·H/C.",
        ),
        steps=(
            f"bytes = {count(float(cost.bytes['hbm']))}, / {number(hbm)} = {amount(float(found.seconds['hbm']), 's')}",
            f"FLOPs = {number(float(cost.total_flops))}, / {number(peak)} = {amount(math_s, 's')}",
            f"the longer: {amount(answer, 's')}",
        ),
        traps=tuple(traps),
        check=f'dscale roofline "attention(B={batch}, T=1, S={context}, N={query}, K={cached}, H=128)" --on {chip}',
    )


@problem(
    "rooflines",
    "Prompts long enough for attention",
    chip=CHIPS,
    groups=(8, 1, 4, 16),
)
def attention_crossover(chip: str, groups: int) -> Posed:
    made, peak, hbm = peak_and_hbm(chip)
    unit = attention_cost(1, 1, 1, 1, groups, 128)
    answer = float(made.intensity("bf16")) / float(unit.intensity())
    traps = [Trap(2 * answer, "4·T·T·N·H FLOPs over 4·T·H·(N + K) bytes: a factor of two too many.")]
    traps.append(Trap(peak / hbm, "C/W is only the limit for very many query heads to a KV head."))
    return Posed(
        ask=f"Flash attention over a prompt of T tokens (T queries, T keys, no mask), bf16, {some(groups, 'query head')} to each KV "
        f"head; queries, keys, values and the result cross HBM once. From which T on does compute bind? {told(chip)}.",
        answer=answer,
        hints=(
            "FLOPs grow with T², bytes with T.",
            "intensity = T·G/(G + 1) with G query heads to a KV head; set it equal to C/W.",
        ),
        steps=(
            f"C/W = {number(peak)} / {number(hbm)} = {number(peak / hbm)}",
            f"T = {number(peak / hbm)} · ({groups} + 1)/{groups} = {number(answer)}",
        ),
        traps=tuple(traps),
        check=f'dscale roofline "attention(B=8, T, N={8 * groups}, K=8, H=128)" --on {chip}',
    )


@problem(
    "rooflines",
    "A matrix for every row",
    batch=(16, 64, 256, 1024),
    model=(4096, 2048, 8192, 512),
    hidden=(16384, 8192, 128),
    dtype=("int8", "bf16"),
)
def batched_matmul_intensity(batch: int, model: int, hidden: int, dtype: str) -> Posed | None:
    cost = einsum_cost(
        parse_einsum(f"{dtype}[B,D] @ {dtype}[B,D,F] -> {dtype}[B,F]"), {"B": batch, "D": model, "F": hidden}
    )
    answer, each = float(cost.intensity()), float(dtype_bytes(dtype))
    shared = float(
        einsum_cost(parse_einsum(f"{dtype}[B,D] @ {dtype}[D,F]"), {"B": batch, "D": model, "F": hidden}).intensity()
    )
    return Posed(
        ask=f"Every row has a matrix of its own: {dtype}[{batch}, {model}] · {dtype}[{batch}, {model}, {hidden}] -> "
        f"{dtype}[{batch}, {hidden}]. How many FLOPs for each byte of HBM?",
        answer=answer,
        hints=(
            "A larger batch brings more weights, not more reuse.",
            "2·B·D·F / (bytes·(B·D + B·D·F + B·F)): B cancels.",
        ),
        steps=(
            f"FLOPs = {number(float(cost.total_flops))}, bytes = {number(float(cost.bytes['hbm']))}",
            f"intensity = {number(answer)}, near 2/{each:g}, whatever the batch is",
        ),
        traps=(
            Trap(shared, "That shares one matrix among all rows."),
            Trap(answer / 2, "A multiply-add is two FLOPs."),
        ),
        check=f'dscale roofline "{dtype}[{batch},{model}] @ {dtype}[{batch},{model},{hidden}] -> {dtype}[{batch},{hidden}]"'.replace(
            f"[{batch},{model}]", f"[B={batch},D={model}]", 1
        )
        .replace(f"[{batch},{model},{hidden}]", f"[B,D,F={hidden}]", 1)
        .replace(f"[{batch},{hidden}]", "[B,F]", 1),
    )
