"""Problems on a run before any plan: parameters, FLOPs, days, dollars, bytes and the chips that hold them."""

from math import prod

from dragonscale.course.closed_forms.rules_of_thumb import (
    DAY,
    YEAR,
    checkpoint_bytes,
    run_cost,
    run_seconds,
    state_bytes,
)
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models.load import load_model
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.slices import chips_to_hold
from dragonscale.physics.rooflines.counts import model_flops

MODELS = ("llama3-70b", "llama3-8b", "llama3-405b", "llama2-13b", "llama2-70b", "qwen2.5-72b", "mistral-large-123b")
SIZES = (70e9, 8e9, 13e9, 32e9, 405e9)
FLEETS = (
    ("v5p", "v5p:16x20x28", 8960), ("h100", "h100:1024", 1024), ("h100", "h100:16384", 16384), ("v5e", "v5e:16x16", 256),
    ("b200", "b200:2048", 2048), ("v6e", "v6e:16x16", 256), ("v5p", "v5p:16x16x16", 4096), ("a100", "a100:2048", 2048),
)  # fmt: skip


@problem(
    "llama3-training",
    "Parameters of a LLaMA",
    cases=("applied-training.llama70b_params:total",),
    model=MODELS,
    part=("total", "mlp", "attention"),
)
def parameters_of_llama(model: str, part: str) -> Posed:
    loaded = load_model(model)
    counts, dims = count_parameters(loaded), loaded.program().sections[1].dims
    d, f, n, k, h = (dims[name] for name in "dfnkh")
    answer = float(counts.total if part == "total" else counts.by_part[part])
    what = {
        "total": "parameters in all",
        "mlp": "parameters in its MLPs",
        "attention": "parameters in attention (Q, K, V, O)",
    }[part]
    formula = {"total": "L·(3DF + 2D(N+K)H) + 2DV", "mlp": "3DF·L", "attention": "2D(N+K)H·L"}[part]
    parts = counts.by_part
    vocab = parts["embed"] + parts.get("head", 0)
    return Posed(
        ask=f"{model} has {loaded.n_layers} layers, D = {count(d)}, a gated MLP of F = {count(f)}, {n} query heads and {k} KV heads of {h}, and a vocabulary of "
        f"{count(loaded.vocab)} with embedding and head apart. How many {what}?",
        answer=answer,
        hints=("Three matrices in the MLP; K and V have fewer heads where KV heads are shared.", formula + "."),
        steps=(
            f"MLP: 3 · {d} · {f} · {loaded.n_layers} = {number(parts['mlp'])}",
            f"attention: 2 · {d} · ({n} + {k}) · {h} · {loaded.n_layers} = {number(parts['attention'])}",
            f"vocabulary: 2 · {d} · {loaded.vocab} = {number(vocab)}; in all {number(counts.total)}",
        ),
        traps=(
            Trap(
                answer - parts["mlp"] / 3 if part != "attention" else answer / 2,
                "Three matrices in the MLP, four projections in attention.",
            ),
            Trap(answer / loaded.n_layers, "That is one layer."),
        ),
        check=f"dscale models {model} --width 120 | grep -E '^(parameters|mlp|attention )'",
    )


@problem(
    "llama3-training",
    "Years on one chip",
    cases=("applied-training.total_flops:years",),
    params=SIZES,
    tokens=(15e12, 1e12, 2e12, 5e12),
    chip=("v5p", "h100", "b200", "v5e", "tpu7x"),
)
def years_on_one_chip(params: float, tokens: float, chip: str) -> Posed:
    peak = load_chip(chip).peak("bf16")
    flops = float(model_flops(params, tokens))
    answer = float(run_seconds(flops, 1, peak)) / YEAR
    return Posed(
        ask=f"How many years would one {chip} take at its bf16 peak of {amount(peak, 'FLOP/s')} to train {number(params)} parameters on {number(tokens)} tokens? "
        f"A year has 365.25 days; attention's dot products left out.",
        answer=answer,
        hints=("First the FLOPs: 6 · parameters · tokens.", "6PT / C, in years of 31,557,600 s."),
        steps=(
            f"FLOPs: 6 · {number(params)} · {number(tokens)} = {number(flops)}",
            f"/ {amount(peak, 'FLOP/s')} = {number(flops / peak)} s",
            f"= {number(answer)} years",
        ),
        traps=(
            Trap(answer / 3, "Training is 6 FLOPs a parameter and token, not 2."),
            Trap(answer * 365.25, "That is in days."),
        ),
        check=f'dscale calc "model_flops({params:g}, {tokens:g}) / {chip}.bf16" --to years',
    )


@problem(
    "llama3-training",
    "Days of a run",
    params=SIZES,
    tokens=(15e12, 1e12, 2e12, 5e12),
    fleet=FLEETS,
    mfu=(0.4, 0.3, 0.5, 0.55),
)
def days_of_a_run(params: float, tokens: float, fleet: tuple[str, str, int], mfu: float) -> Posed | None:
    chip, on, chips = fleet
    peak = load_chip(chip).peak("bf16")
    flops = float(model_flops(params, tokens))
    answer = float(run_seconds(flops, chips, peak, mfu))
    if answer < 2 * DAY:
        return None
    return Posed(
        ask=f"How long do {count(chips)} {chip}s of {amount(peak, 'FLOP/s')} take at {mfu:.0%} MFU to train {number(params)} parameters on {number(tokens)} tokens? "
        f"6 FLOPs a parameter and token; answer in days, such as 12d.",
        answer=answer,
        dimension="s",
        hints=("FLOPs of the run over those that the chips really do.", "6PT / (N·C·MFU)."),
        steps=(
            f"FLOPs: {number(flops)}",
            f"rate: {chips} · {amount(peak, 'FLOP/s')} · {mfu} = {number(chips * peak * mfu)} FLOP/s",
            f"{number(answer)} s = {number(answer / DAY)} days",
        ),
        traps=(
            Trap(answer * mfu, "That is at the full peak."),
            Trap(answer / 3, "Training is 6 FLOPs a parameter and token."),
        ),
        check=f"dscale estimate --params {params:g} --tokens {tokens:g} --on {on} --mfu {mfu:.0%} --width 120 | grep 'run time'",
    )


@problem(
    "llama3-training",
    "Dollars of a run",
    cases=("applied-training.train_cost:usd",),
    chip=("v5p", "v5e", "v6e", "v4"),
    chips=(8960, 1024, 2048, 4096, 256),
    days=(44.32, 30.0, 12.5, 60.0, 7.0),
)
def dollars_of_a_run(chip: str, chips: int, days: float) -> Posed:
    price = load_chip(chip).price
    assert price is not None
    answer = float(run_cost(chips, days * DAY, price))
    return Posed(
        ask=f"What does a run of {days:g} days on {count(chips)} {chip}s cost, at ${price:g} an hour for a chip?",
        answer=answer,
        dimension="USD",
        hints=("Chip-hours times the price.", "chips · 24 · days · price."),
        steps=(
            f"chip-hours: {chips} · 24 · {days:g} = {number(chips * 24 * days)}",
            f"times ${price:g}: ${number(answer)}",
        ),
        traps=(
            Trap(answer / 24, "The price is by the hour; a day has 24."),
            Trap(answer / chips, "That is one chip."),
        ),
        check=f'dscale calc "run_cost(chips={chips}, seconds={days:g} days, usd_per_chip_hour={chip}.price)"',
    )


@problem(
    "llama3-training",
    "Checkpoints of a batch",
    cases=("applied-training.memory_breakdown:checkpoints",),
    tokens=(4e6, 1e6, 2e6, 8e6, 16e6),
    model=("llama3-70b", "llama3-8b", "llama3-405b", "llama2-13b"),
    kept=(4, 1, 2, 6, 12),
)
def checkpoints_of_a_batch(tokens: float, model: str, kept: int) -> Posed:
    loaded = load_model(model)
    d, layers = loaded.d_model, loaded.n_layers
    answer = float(checkpoint_bytes(tokens, [d] * kept, layers))
    return Posed(
        ask=f"{model} ({layers} layers, D = {count(d)}) keeps {kept} bf16 tensor{'s' if kept > 1 else ''} of [tokens, D] in each layer for the backward pass. How many bytes "
        f"are that for {number(tokens)} tokens?",
        answer=answer,
        dimension="bytes",
        hints=("Two bytes for each token, channel, tensor and layer.", "2·B·D·n·L."),
        steps=(
            f"a token: 2 · {d} · {kept} · {layers} = {amount(answer / tokens, 'bytes')}",
            f"{number(tokens)} tokens: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer / 2, "bf16 has two bytes."),
            Trap(answer / kept if kept > 1 else answer * layers, "How many tensors in each layer?"),
        ),
        check=f'dscale calc "2 bytes * {tokens:g} * {model}.D * {kept} * {model}.L"',
    )


@problem(
    "llama3-training",
    "The fewest chips that hold a run",
    cases=("applied-training.one_checkpoint:chips",),
    kept=(1, 4, 2, 12),
    chip=("v5p", "h100", "h200", "b200", "v6e"),
    model=(("llama3-70b", 70e9), ("llama3-8b", 8e9), ("llama2-13b", 13e9)),
    tokens=(4e6, 1e6, 2e6, 8e6),
)
def fewest_chips(kept: int, chip: str, model: tuple[str, float], tokens: float) -> Posed:
    name, params = model
    loaded, place = load_model(name), load_chip(chip)
    d, layers = loaded.d_model, loaded.n_layers
    state, activations = float(state_bytes(params)), float(checkpoint_bytes(tokens, [d] * kept, layers))
    answer = float(chips_to_hold(place, state + activations))
    return Posed(
        ask=f"{name}: {number(params)} parameters with 10 bytes of state each, {layers} layers, D = {count(d)}. A batch of {number(tokens)} tokens keeps {kept} bf16 "
        f"tensor{'s' if kept > 1 else ''} of [tokens, D] in each layer. How many {chip}s of {amount(place.hbm.capacity, 'bytes')} hold it all at least?",
        answer=answer,
        whole=True,
        hints=("State and activations of all layers, over the HBM of one chip.", "⌈(10P + 2·B·D·n·L)/HBM⌉."),
        steps=(
            f"state: {amount(state, 'bytes')}; activations: {amount(activations, 'bytes')}",
            f"{amount(state + activations, 'bytes')} / {amount(place.hbm.capacity, 'bytes')} = {number((state + activations) / place.hbm.capacity)}",
            f"rounded up: {count(answer)}",
        ),
        traps=(
            Trap(float(chips_to_hold(place, state)), "The activations of the batch must be held too."),
            Trap(float(chips_to_hold(place, state + activations / 2)), "bf16 has two bytes."),
        ),
        check=f'dscale calc "ceil((10 bytes * {params:g} + 2 bytes * {tokens:g} * {d} * {kept} * {layers}) / {chip}.hbm)"',
    )


@problem(
    "llama3-training",
    "Memory of a chip on a pod",
    cases=("applied-training.per_chip_memory:per_chip_12",),
    kept=(12, 4, 1, 2, 8),
    tokens=(4e6, 1e6, 2e6, 16e6),
    model=(("llama3-70b", 70e9), ("llama3-8b", 8e9), ("llama2-13b", 13e9)),
    pod=("v5p", "v4", "v5e"),
)
def memory_on_a_pod(kept: int, tokens: float, model: tuple[str, float], pod: str) -> Posed:
    name, params = model
    loaded = load_model(name)
    chips = prod(load_chip(pod).network.pod)  # pyright: ignore[reportAttributeAccessIssue]
    d, layers = loaded.d_model, loaded.n_layers
    state, activations = float(state_bytes(params)), float(checkpoint_bytes(tokens, [d] * kept, layers))
    answer = (state + activations) / chips
    return Posed(
        ask=f"{name} ({number(params)} parameters, {layers} layers, D = {count(d)}) trains on a {pod} pod of {count(chips)} chips, everything divided evenly: 10 bytes of state a "
        f"parameter, and {kept} bf16 tensor{'s' if kept > 1 else ''} of [tokens, D] a layer for {number(tokens)} tokens. How many bytes has each chip?",
        answer=answer,
        dimension="bytes",
        hints=("Add state and activations, then divide.", "(10P + 2·B·D·n·L)/N."),
        steps=(
            f"state: {amount(state, 'bytes')}; activations: {amount(activations, 'bytes')}",
            f"each of {count(chips)}: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(state / chips, "That is the state alone."),
            Trap((state + activations / 2) / chips, "bf16 has two bytes."),
        ),
        tolerance=0.01,
        check=f'dscale calc "(10 bytes * {params:g} + 2 bytes * {tokens:g} * {d} * {kept} * {layers}) / {chips}"',
    )
