"""Problems on what must be held: state under data parallelism and FSDP, activations, chips that hold them."""

from dragonscale.course.closed_forms.rules_of_thumb import checkpoint_bytes, largest_model, state_bytes
from dragonscale.course.problem import Posed, Trap, problem
from dragonscale.course.words import amount, count, number
from dragonscale.models.load import load_model
from dragonscale.models.transformer import count_parameters
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.slices import chips_to_hold

RECIPES = {
    "bf16 weights and two fp32 moments of Adam": (10, ()),
    "bf16 weights, two fp32 moments of Adam and an fp32 master copy": (14, ("fp32",)),
    "bf16 weights and gradients, two fp32 moments of Adam and an fp32 master copy": (16, ("bf16", "fp32")),
    "bf16 weights, fp32 gradients, two fp32 moments of Adam and an fp32 master copy": (18, ("fp32", "fp32")),
}
CHIPS = ("v5p", "h100", "v5e", "v6e", "b200", "h200", "a100")


@problem(
    "training",
    "The largest model of plain data parallelism",
    cases=("training.dp_max_params_v5p:max_params",),
    chip=CHIPS,
    recipe=tuple(RECIPES),
)
def largest_model_of_data_parallelism(chip: str, recipe: str) -> Posed:
    loaded, (size, more) = load_chip(chip), RECIPES[recipe]
    answer = float(largest_model(loaded, state_bytes(1, "bf16", ("fp32", "fp32"), *more)))
    return Posed(
        ask=f"Under plain data parallelism each chip holds {recipe}. How many parameters fit the {amount(loaded.hbm.capacity, 'bytes')} of one {chip}, "
        f"activations left out?",
        answer=answer,
        hints=("How many bytes has each parameter?", f"{size} bytes: HBM / {size}."),
        steps=(f"bytes a parameter: {size}", f"{amount(loaded.hbm.capacity, 'bytes')} / {size} = {number(answer)}"),
        traps=(
            Trap(loaded.hbm.capacity / 2, "The optimizer must be held too."),
            Trap(answer * size / (size - 4), "Adam has two moments of four bytes each; count every copy."),
        ),
        check=f'dscale calc "largest_model({chip}, bytes_per_param={size})"',
    )


@problem(
    "training",
    "State on each chip under FSDP",
    cases=("training.zero_state_memory:fsdp",),
    params=(13e9, 8e9, 70e9, 405e9, 34e9),
    chips=(4096, 64, 256, 512, 1024),
    recipe=tuple(RECIPES),
)
def state_under_fsdp(params: float, chips: int, recipe: str) -> Posed:
    size, more = RECIPES[recipe]
    answer = float(state_bytes(params, "bf16", ("fp32", "fp32"), *more)) / chips
    return Posed(
        ask=f"Training keeps {recipe}. How many bytes has each of {count(chips)} chips under FSDP, for {number(params)} parameters?",
        answer=answer,
        dimension="bytes",
        hints=("How many bytes has each parameter?", f"{size}·P/X."),
        steps=(
            f"all: {size} · {number(params)} = {amount(answer * chips, 'bytes')}",
            f"each of {chips}: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(answer * chips, "That is plain data parallelism: FSDP divides the state."),
            Trap(answer * 2 / size, "That is the weights alone."),
        ),
        check=f'dscale calc "{size} bytes * {params:g} / {chips}"',
    )


@problem(
    "training",
    "Chips that hold the state",
    chip=CHIPS,
    model=("llama3-70b", "llama3-8b", "llama3-405b", "llama2-13b", "mixtral-8x7b", "deepseek-v3", "qwen2.5-72b"),
    recipe=tuple(RECIPES)[2:] + tuple(RECIPES)[:2],
)
def chips_that_hold_the_state(chip: str, model: str, recipe: str) -> Posed:
    loaded, (size, more) = load_chip(chip), RECIPES[recipe]
    params = count_parameters(load_model(model)).total
    held = float(state_bytes(params, "bf16", ("fp32", "fp32"), *more))
    answer = float(chips_to_hold(loaded, held))
    used = float(chips_to_hold(loaded, 2.0 * params))
    return Posed(
        ask=f"{model} has {number(params, 6)} parameters. How many {chip}s of {amount(loaded.hbm.capacity, 'bytes')} are needed at least to hold {recipe}, "
        f"activations left out?",
        answer=answer,
        whole=True,
        hints=("How many bytes has each parameter?", f"⌈{size}·P / HBM⌉."),
        steps=(
            f"{size} · {number(params, 6)} = {amount(held, 'bytes')}",
            f"/ {amount(loaded.hbm.capacity, 'bytes')} = {number(held / loaded.hbm.capacity)}, rounded up {count(answer)}",
        ),
        traps=(
            Trap(used, "That holds the weights alone."),
            Trap(answer * 2, "bf16 has two bytes, fp32 four."),
        ),
        check=f'dscale calc "ceil({size} bytes * {model}.params / {chip}.hbm)"',
    )


@problem(
    "training",
    "Activations of a batch",
    cases=("training.q2_memory:activation_bytes",),
    model=("llama2-13b", "llama3-8b", "llama3-70b", "llama2-7b", "mistral-7b"),
    tokens=(16e6, 1e6, 3e6, 4e6, 8e6),
)
def activations_of_a_batch(model: str, tokens: float) -> Posed:
    loaded = load_model(model)
    dims = loaded.program().sections[1].dims
    d, width, layers = dims["d"], dims["f"], loaded.n_layers
    answer = float(checkpoint_bytes(tokens, [d, width, width], layers))
    return Posed(
        ask=f"{model} has {layers} layers, D = {count(d)} and F = {count(width)}. For the backward pass only what the three matmuls of the gated MLP put out is "
        f"kept, in bf16 (two tensors of width F, one of width D). How many bytes are that for {number(tokens)} tokens?",
        answer=answer,
        dimension="bytes",
        hints=("Every token has D + 2F numbers in each layer.", "2·L·B·(D + 2F)."),
        steps=(
            f"numbers of a token in a layer: {d} + 2 · {width} = {count(d + 2 * width)}",
            f"2 · {layers} · {number(tokens)} · {count(d + 2 * width)} = {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(float(checkpoint_bytes(tokens, [d] * 3, layers)), "Two of the three tensors are as wide as F."),
            Trap(answer / 2, "bf16 has two bytes."),
        ),
        check=f'dscale calc "2 bytes * {layers} * {tokens:g} * ({d} + 2*{width})"',
    )


@problem(
    "training",
    "Memory of a chip with state and activations",
    cases=("training.q3_2_pure_fsdp:per_device",),
    model=(("llama2-13b", 13e9), ("llama3-8b", 8e9), ("llama3-70b", 70e9)),
    tokens=(3e6, 1e6, 4e6, 8e6),
    chips=(4096, 512, 1024, 2048),
)
def memory_of_a_chip(model: tuple[str, float], tokens: float, chips: int) -> Posed:
    name, params = model
    loaded = load_model(name)
    dims = loaded.program().sections[1].dims
    d, width, layers = dims["d"], dims["f"], loaded.n_layers
    state, kept = float(state_bytes(params)), float(checkpoint_bytes(tokens, [d, width, width], layers))
    answer = (state + kept) / chips
    return Posed(
        ask=f"{name}, {number(params)} parameters with 10 bytes of state each, trains on {number(tokens)} tokens a step and keeps {amount(kept, 'bytes')} of "
        f"activations. Under FSDP over {count(chips)} chips, which also share the tokens, how many bytes has each chip?",
        answer=answer,
        dimension="bytes",
        hints=("Both state and activations are divided by the chips.", "(10P + activations)/N."),
        steps=(
            f"state: {amount(state, 'bytes')}, activations: {amount(kept, 'bytes')}",
            f"together {amount(state + kept, 'bytes')}, each of {count(chips)}: {amount(answer, 'bytes')}",
        ),
        traps=(
            Trap(state + kept / chips, "FSDP divides the state too."),
            Trap(state / chips, "The activations must be held too."),
        ),
        check=f'dscale calc "(10 bytes * {params:g} + 2 bytes * {layers} * {tokens:g} * ({d} + 2*{width})) / {chips}"',
        tolerance=0.01,
    )
