"""Whether an engine runs a plan on a chip, and in one sentence why not: what was given, the rule, and the nearest that
is legal.

>>> from dragonscale.physics.hardware import parse_slice
>>> from dragonscale.models import load_model
>>> from dragonscale.serving.engine.plan import parse_serving_plan
>>> print(refusal("vllm", parse_slice("h100:8"), load_model("phi-4"), parse_serving_plan("tensor=8")))
phi-4 has 10 KV heads, which tensor=8 neither divides nor is a multiple of; take tensor=2
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dragonscale.models.catalogue import presets_that_take
from dragonscale.models.served_checkpoints import padded_hidden
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import Chip, Slice
from dragonscale.serving.engine.auto import NODE
from dragonscale.serving.engine.checkpoint import bits, own_formats, stored_in
from dragonscale.serving.engine.legality import (
    NVIDIA,
    WIDE,
    EngineLegality,
    architecture,
    caches,
    current_engines,
    pair_word,
    pairs,
    rules,
    server_of,
)
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.restrictions import BOTH, restriction

MARLIN = 64
"""What a rank's part of a dim must be a multiple of for Marlin's int4 kernels; of two dims one must be a multiple of
twice that."""


@dataclass(frozen=True)
class Divisible:
    """The sizes of a model that a plan divides."""

    name: str
    d_model: int
    layers: int
    heads: int
    kv_heads: tuple[int, ...]
    experts: int
    expert_hidden: tuple[int, ...]
    hidden: tuple[int, ...]
    """Hidden dims of other layers and of shared experts."""
    projected: tuple[tuple[int, int, int], ...]
    """Query heads, KV heads and head dim of layers that have all three."""
    latent: bool
    """Whether keys and values are compressed into one latent (MLA)."""
    blocks: bool
    """Whether the checkpoint's scales are those of square blocks."""

    def stored(self, size: int, weights: str) -> int:
        """A hidden dim as published checkpoints with weights of that format have it, which may be padded."""
        return padded_hidden(self.name, weights).get(size, size)


def divisible(model: Transformer) -> Divisible:
    """The sizes of a model that a plan divides."""
    dims = [section.dims for section in model.program().sections]
    plain = {own["f"] for own in dims if "f" in own and "e" not in own} | {own["z"] for own in dims if "z" in own}
    return Divisible(
        name=model.name,
        d_model=model.d_model,
        layers=model.n_layers,
        heads=math.gcd(*(own[letter] for own in dims for letter in ("n", "u", "mn") if letter in own)),
        kv_heads=tuple(sorted({own["k"] for own in dims if "k" in own})),
        experts=max((own.get("e", 0) for own in dims), default=0),
        expert_hidden=tuple(sorted({own["f"] for own in dims if "e" in own and "f" in own})),
        hidden=tuple(sorted(plain)),
        projected=tuple(sorted({(own["n"], own["k"], own["h"]) for own in dims if {"n", "k", "h"} <= own.keys()})),
        latent=any("c" in own and "k" not in own for own in dims),
        blocks=bool(model.quantization.block) and stored_in(model) == "fp8",
    )


def refusal(
    engine: str,
    piece: Slice | Chip,
    model: Transformer,
    plan: ServingPlan,
    lengths: tuple[int, int] = (0, 0),
    role: str = BOTH,
) -> str:
    """Why an engine does not run a plan of a model on a chip in replicas of such a role, or the model does not take
    prompts and outputs of such lengths; empty if all is well."""
    chip = piece.chip if isinstance(piece, Slice) else piece
    return (
        engine_refusal(engine, chip)
        or format_refusal(engine, chip, model, plan)
        or width_refusal(rules(engine), chip, divisible(model), plan, role)
        or context_refusal(model, *lengths)
    )


def engine_refusal(engine: str, chip: Chip) -> str:
    """That an engine does not run on a chip, and which does."""
    if pairs(engine, chip):
        return ""
    row = rules(engine)
    gone = f" ({row.archived})" if row.archived else ""
    return (
        f"{engine} does not run on {chip.title}{gone}: it runs on {row.runs}; take --engine "
        f"{' or '.join(current_engines(chip))}"
    )


def format_refusal(engine: str, chip: Chip, model: Transformer, plan: ServingPlan) -> str:
    """That an engine has no kernels for a plan's formats on a chip, and which it has."""
    here, pair = pairs(engine, chip), (plan.weights, plan.compute)
    if pair not in here:
        return _no_pair(engine, chip, model, *pair)
    has = caches(engine, chip)
    if plan.kv not in has:
        near = min(has, key=lambda one: abs(bits(one) - bits(plan.kv)))
        return f"{engine} has no KV cache in {plan.kv} on {chip.title}, only {', '.join(has)}; take --kv-dtype {near}"
    broken = restriction(engine, chip, divisible(model).latent, ServingPlan(kv=plan.kv))
    return f"{broken.why}; take {broken.take}" if broken.why else ""


def model_caches(engine: str, chip: Chip, model: Transformer) -> tuple[str, ...]:
    """Formats of the KV cache that an engine has on a chip for a model.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import load_chip
    >>> [model_caches("sglang", load_chip("b200"), load_model(name))[-1] for name in ("llama3-70b", "deepseek-v3")]
    ['nvfp4', 'fp8']
    """
    latent = divisible(model).latent
    return tuple(kv for kv in caches(engine, chip) if not restriction(engine, chip, latent, ServingPlan(kv=kv)).why)


NARROW_PRODUCTS = ("fp8", "mxfp8", "nvfp4", "mxfp4")
"""Formats that some chips multiply as they are, and others only store."""


def stored_note(chip: Chip, plan: ServingPlan) -> str:
    """That a chip only stores weights of a format that others multiply, and what it multiplies; empty elsewhere.

    >>> from dragonscale.physics.hardware import load_chip
    >>> stored_note(load_chip("mi355x"), ServingPlan(weights="nvfp4"))[:63]
    'AMD Instinct MI355X 288GB has no nvfp4 matmul: weights are stor'
    """
    if plan.weights not in NARROW_PRODUCTS or plan.compute not in WIDE or chip.format(plan.weights) == "native":
        return ""
    peak = chip.peak(plan.compute) / 1e12
    return (
        f"{chip.title} has no {plan.weights} matmul: weights are stored in {plan.weights} and multiplied in "
        f"{plan.compute}, at {peak:,.0f} TFLOP/s a chip at most."
    )


def _no_pair(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> str:
    here, product = pairs(engine, chip), compute.removesuffix("_block")
    own_bits = bits(weights)
    # `min` takes the first of equals, which are the usual ones
    near = min(here, key=lambda one: (one[0] != weights, one[1] != compute, abs(bits(one[0]) - own_bits)))
    if near[0] != weights:
        own = own_formats(engine, chip, model)
        same = [one for one in here if bits(one[0]) == bits(weights)]
        near = near if same or own is None else (own.weights, own.compute)
    take = f"--dtype {near[0]}" if near[0] == near[1] else f"--weights {near[0]} --compute {near[1]}"
    if not chip.format(weights):
        why = f"{chip.title} neither multiplies nor stores {weights}"
    elif chip.format(product) != "native":
        stores = "stores it and multiplies something wider" if chip.format(product) else "has none"
        why = f"{chip.title} has no {product} matmul: it {stores}"
    else:
        why = f"{engine} has no kernels for {pair_word(weights, compute)} on {chip.title}"
    listed = ", ".join(pair_word(*one) for one in here)
    return f"{why}; {engine} serves there in {listed}: take {take}"


def context_refusal(model: Transformer, prompt: int, output: int) -> str:
    """That a model was not made for so many tokens, and the prompt that it takes."""
    if model.context is None or prompt + output <= model.context:
        return ""
    fits = f": --prompt {model.context - output}" if output < model.context else ""
    long = presets_that_take(prompt + output)
    others = f", or a model that takes them ({', '.join(long[:4])}{', …' * (len(long) > 4)})" if long else ""
    return (
        f"{model.name} has a context of {model.context:,} tokens, and prompt and output are {prompt + output:,}; "
        f"ask for at most {model.context:,} together{fits}{others}"
    )


def shortened_prompt(text: str, prompt: int, output: int, context: int | None, name: str) -> tuple[int, str]:
    """The tokens of a prompt that was written as all of a model's context, without those of its output, and a note.

    People mean the model's longest request by 128k, and a request is prompt and output together.

    >>> shortened_prompt("128k", 131072, 1024, 131072, "llama3.1-8b")[0]
    130048
    >>> shortened_prompt("131072", 131072, 1024, 131072, "llama3.1-8b")
    (131072, '')
    """
    is_whole_context = context is not None and prompt == context and re.fullmatch(r"\d+\s*[kK]", text.strip())
    if not is_whole_context or not 0 < output < prompt:
        return prompt, ""
    note = (
        f"{text.strip()} is all of {name}'s context of {prompt:,} tokens; prompts of {prompt - output:,} are taken, "
        f"which leave {output:,} for the output."
    )
    return prompt - output, note


def width_refusal(row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan, role: str = BOTH) -> str:
    """Why a plan's widths are not legal, or the engine's release does not run it, with the nearest that is."""
    why = next(_wrong_widths(row, chip, sizes, plan), "")
    if not why:
        broken = restriction(row.name, chip, sizes.latent, plan, role)
        if not broken.why:
            return ""
        if broken.take:
            return f"{broken.why}; take {broken.take}"
        why = broken.why
    near = _neighbour(row, chip, sizes, plan, role)
    plain = f"--engine {server_of(row.name)}" if row.wide else ""
    take = ", or ".join(one for one in (near, plain) if one)
    return f"{why}; take {take}" if take else why


def legal_widths(
    row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan, roles: tuple[str, ...] = (BOTH,)
) -> bool:
    """Whether a plan's widths are legal, and it runs in one of the roles: what a search asks of every split."""
    if next(_wrong_widths(row, chip, sizes, plan), ""):
        return False
    return any(not restriction(row.name, chip, sizes.latent, plan, role, unasked=True).why for role in roles)


def _wrong_widths(row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Each rule that a plan breaks, in the order in which engines check them."""
    yield from _wrong_axes(row, sizes, plan)
    plan, tensor = _over_devices(plan, chip), plan.tensor
    cores = f" ({plan.tensor} devices)" if plan.tensor != tensor else ""
    if sizes.heads % plan.tensor:
        yield f"{sizes.name} has {sizes.heads} heads, which tensor={tensor}{cores} does not divide"
    for heads in sizes.kv_heads:
        if plan.tensor % heads and heads % plan.tensor:
            degree = f"tensor={tensor}{cores}"
            yield f"{sizes.name} has {heads} KV heads, which {degree} neither divides nor is a multiple of"
    if sizes.experts:
        yield from _wrong_experts(row, sizes, plan)
    if row.block and (plan.compute == "fp8_block" or (sizes.blocks and plan.weights == "fp8")):
        yield from _wrong_blocks(row.block, sizes, plan)
    if row.group and plan.weights == "int4" and chip.kind == "gpu":
        yield from _wrong_groups(row.group, sizes, plan)
    if row.marlin and plan.weights == "int4" and architecture(chip) in NVIDIA:
        yield from _wrong_marlin(sizes, plan)


def _over_devices(plan: ServingPlan, chip: Chip) -> ServingPlan:
    """A plan as its devices see it: where a chip is several of them (TPU7x), `tensor` goes on between them. One chip
    alone may have a copy on each."""
    if chip.devices == 1 or plan.tensor == 1:
        return plan
    dealt = plan.expert == plan.data * plan.tensor
    return replace(plan, tensor=plan.tensor * chip.devices, expert=plan.expert * (chip.devices if dealt else 1))


def _because(row: EngineLegality, word: str) -> str:
    return f" ({row.because[word]})" if word in row.because else ""


def wide_refusal(engine: str, model: Transformer, chips: int = 0) -> str:
    """That wide expert parallelism is nothing for a model without experts, nor for one chip."""
    if not rules(engine).wide or (divisible(model).experts and chips != 1):
        return ""
    lacks = f"{model.name} has no experts" if not divisible(model).experts else "one chip has no others"
    return f"{WIDE_WORDS.format(engine)}, and {lacks}; take --engine {server_of(engine)}"


def exchange_note(engine: str, chip: Chip, plan: ServingPlan) -> str:
    """That wide expert parallelism over several servers is run with another form of an engine; empty for other plans.

    >>> from dragonscale.physics.hardware import load_chip
    >>> exchange_note("sglang", load_chip("h200"), ServingPlan(data=16, expert=16))[:70]
    'sglang gathers the tokens of all 16 ranks for the experts; wide expert'
    """
    form = rules(engine).wide_form
    is_plain = bool(form) and not rules(engine).wide
    if not is_plain or not plan.is_wide or plan.chips <= NODE or not pairs(form, chip):
        return ""
    return (
        f"{engine} gathers the tokens of all {plan.chips} ranks for the experts; wide expert parallelism over several "
        f"servers is run with an all-to-all, which --engine {form} has."
    )


WIDE_WORDS = "{} is data-parallel attention with experts over all ranks"


def _wrong_axes(row: EngineLegality, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    if row.wide and plan.data == 1:
        yield f"{WIDE_WORDS.format(row.name)}, and the plan has data=1"
    for axis in ("pipe", "data", "width", "context"):
        size = getattr(plan, axis)
        if size > 1 and not getattr(row, axis):
            yield f"{row.name} has no {axis}={size}{_because(row, axis)}"
    if plan.spread not in row.spread and plan.tensor > 1:
        yield f"{row.name} has no spread={plan.spread}, only {', '.join(row.spread)}{_because(row, 'spread')}"
    if plan.pipe > sizes.layers:
        yield f"{sizes.name} has {sizes.layers} layers, fewer than pipe={plan.pipe}"
    if plan.data > 1 and not sizes.experts:
        yield (
            f"{sizes.name} has no experts to share between data={plan.data} replicas of its attention: serve separate "
            "replicas"
        )
    if row.latent_data and sizes.latent and plan.data == 1 and plan.tensor > 1:
        yield f"tensor={plan.tensor} is given without data{_because(row, 'data')}"


def _wrong_experts(row: EngineLegality, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    world, ways = plan.data * plan.tensor, plan.expert
    dealt = {world} if row.wide else {1, world} if row.expert == "world" else {ways}
    if world % ways or ways not in dealt:
        allowed = " or ".join(map(str, sorted(dealt))) if row.expert == "world" else f"a divisor of {world}"
        yield f"with tensor={plan.tensor} and data={plan.data} expert is {allowed}, not {ways}{_because(row, 'expert')}"
    if ways > sizes.experts and not (row.redundant and ways <= 2 * sizes.experts):
        yield f"{sizes.name} has {sizes.experts} experts, fewer than expert={ways}"
    elif sizes.experts % ways and not (row.uneven or row.redundant):
        yield f"{sizes.name} has {sizes.experts} experts, which expert={ways} does not divide"


def _wrong_blocks(block: int, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Scales of blocks: what a rank has of a dim is a whole number of them, unless ranks have whole experts."""
    slices = max(plan.data * plan.tensor // plan.expert, 1)
    for what, dims, ways in (("experts'", sizes.expert_hidden, slices), ("", sizes.hidden, plan.tensor)):
        for size in dims:
            if ways > 1 and (size % ways or size // ways % block):
                hidden = f"{what} hidden dim".strip()
                yield (
                    f"scales of blocks need multiples of {block}, and the {hidden} of {size} over {ways} ranks "
                    f"leaves {size / ways:g}"
                )
    for queries, keys, head in sizes.projected:
        each = max(keys // plan.tensor, 1) * head
        if plan.tensor > 1 and (queries * head // plan.tensor % block or each % block):
            yield f"scales of blocks need multiples of {block}, and tensor={plan.tensor} leaves {each} columns of keys"


def _wrong_groups(group: int, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Scales of groups of inputs: of the layers whose inputs are split (down and output projections) each rank has
    whole groups. Experts' kernels take smaller groups where they do not divide."""
    if plan.tensor == 1:
        return
    for hidden in sizes.hidden:
        size = sizes.stored(hidden, plan.weights)
        if size % (group * plan.tensor):
            yield (
                f"int4 weights have a scale for every {group} inputs, and a hidden dim of {size} over {plan.tensor} "
                f"ranks leaves {size / plan.tensor:g}"
            )
    for queries, _, head in sizes.projected:
        size = queries * head
        if size % (group * plan.tensor):
            yield (
                f"int4 weights have a scale for every {group} inputs, and the {size} outputs of attention over "
                f"{plan.tensor} ranks leave {size / plan.tensor:g}"
            )


def _wrong_marlin(sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Marlin's shapes: n a multiple of 64 and k of 128, or the other way round."""
    slices = max(plan.data * plan.tensor // plan.expert, 1)
    dims = [(size, slices) for size in sizes.expert_hidden]
    dims += [(sizes.stored(size, plan.weights), plan.tensor) for size in sizes.hidden]
    for size, ways in dims:
        each = size / ways
        twice = 2 * MARLIN
        if each % MARLIN or (each % twice and sizes.d_model % twice):
            yield (
                f"int4 kernels (Marlin) need multiples of {MARLIN}, and a hidden dim of {size} over {ways} ranks "
                f"leaves {each:g}"
            )


def _neighbour(row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan, role: str) -> str:
    """The nearest legal plan, in the settings that change: other ways for experts, then fewer ways of each axis."""

    def legal(**changes: object) -> bool:
        changed = replace(plan, **changes)  # pyright: ignore[reportArgumentType]
        return legal_widths(row, chip, sizes, changed, (role,))

    world = plan.data * plan.tensor
    one_off: dict[str, object] = {axis: 1 for axis in ("pipe", "width", "context") if not getattr(row, axis)}
    if plan.spread not in row.spread:
        one_off["spread"] = row.spread[0]
    if plan.data > 1 and (not sizes.experts or not row.data):
        one_off |= {"data": 1, "expert": min(plan.expert, plan.tensor)}
    if row.latent_data and sizes.latent and plan.data == 1:
        one_off |= {"data": plan.tensor, "tensor": 1, "expert": world if sizes.experts else 1}
    if row.wide and plan.data == 1:
        one_off |= {"data": world * plan.pipe, "tensor": 1, "expert": world * plan.pipe}
    tries: list[dict[str, object]] = [one_off] if one_off else []
    divisors = (ways for ways in range(1, world + 1) if world % ways == 0)
    dealt = sorted(divisors, key=lambda ways: abs(math.log(ways / plan.expert)))
    tries += [one_off | {"expert": ways} for ways in dealt if sizes.experts and ways != plan.expert]
    for tensor in (size for size in range(plan.tensor - 1, 0, -1) if plan.tensor % size == 0):
        ways = [1, plan.data * tensor] if sizes.experts else [1]
        tries += [one_off | {"tensor": tensor, "expert": dealt_to} for dealt_to in ways]
    fewer = range(plan.data - 1, 0, -1) if sizes.experts and row.data else ()
    tries += [one_off | {"data": data, "expert": data * plan.tensor} for data in fewer]
    found = next((one for one in tries if legal(**one)), {})
    return ",".join(f"{name}={value}" for name, value in found.items() if value != getattr(plan, name))
