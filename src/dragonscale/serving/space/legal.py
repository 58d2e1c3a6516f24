"""Whether an engine runs a plan on a chip, and if not, a sentence: what was given, the rule, and the nearest legal
plan.

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
    pair_words,
    pairs,
    rules,
    server_of,
    table_entry,
)
from dragonscale.serving.engine.plan import ServingPlan
from dragonscale.serving.engine.restrictions import BOTH, restriction

MARLIN = 64
"""What a rank's shard of a dim must be a multiple of for Marlin's int4 kernels; of the two dims of a matrix one must be
a multiple of twice that."""


@dataclass(frozen=True)
class Divisible:
    """The sizes of a model that a plan must divide."""

    name: str
    d_model: int
    layers: int
    heads: int
    kv_heads: tuple[int, ...]
    experts: int
    expert_hidden: tuple[int, ...]
    hidden: tuple[int, ...]
    """Hidden dims of dense layers and of shared experts."""
    projected: tuple[tuple[int, int, int], ...]
    """(query heads, KV heads, head dim) of layers that have all three."""
    latent: bool
    """Whether keys and values are compressed into one latent (MLA)."""
    blocks: bool
    """Whether the checkpoint is in fp8 with scales for square blocks."""

    def stored(self, size: int, weights: str) -> int:
        """A hidden dim as published checkpoints with weights of a format store it; it may be padded."""
        return padded_hidden(self.name, weights).get(size, size)


def divisible(model: Transformer) -> Divisible:
    """The sizes of a model that a plan must divide."""
    dims = [section.dims for section in model.program().sections]
    # letters of dims: n, u and mn are heads of (linear) attention, k KV heads, f and z hidden dims, c a latent
    heads = [sizes[letter] for sizes in dims for letter in ("n", "u", "mn") if letter in sizes]
    kv_heads: set[int] = set()
    experts = 0
    expert_hidden: set[int] = set()
    hidden: set[int] = set()
    projected: set[tuple[int, int, int]] = set()
    for sizes in dims:
        experts = max(experts, sizes.get("e", 0))
        if "k" in sizes:
            kv_heads.add(sizes["k"])
        if "f" in sizes and "e" in sizes:
            expert_hidden.add(sizes["f"])
        elif "f" in sizes:
            hidden.add(sizes["f"])
        if "z" in sizes:
            hidden.add(sizes["z"])
        if {"n", "k", "h"} <= sizes.keys():
            projected.add((sizes["n"], sizes["k"], sizes["h"]))
    return Divisible(
        name=model.name,
        d_model=model.d_model,
        layers=model.n_layers,
        heads=math.gcd(*heads),
        kv_heads=tuple(sorted(kv_heads)),
        experts=experts,
        expert_hidden=tuple(sorted(expert_hidden)),
        hidden=tuple(sorted(hidden)),
        projected=tuple(sorted(projected)),
        latent=any("c" in sizes and "k" not in sizes for sizes in dims),
        blocks=bool(model.quantization.block) and stored_in(model) == "fp8",
    )


def refusal(
    engine: str,
    on: Slice | Chip,
    model: Transformer,
    plan: ServingPlan,
    lengths: tuple[int, int] = (0, 0),
    role: str = BOTH,
) -> str:
    """Why an engine does not run a plan of a model on a chip in replicas of a role, or why the model does not take
    prompts and outputs of such lengths; empty if all is well."""
    chip = on.chip if isinstance(on, Slice) else on
    return (
        engine_refusal(engine, chip)
        or format_refusal(engine, chip, model, plan)
        or width_refusal(rules(engine), chip, divisible(model), plan, role)
        or context_refusal(model, *lengths)
    )


def engine_refusal(engine: str, chip: Chip) -> str:
    """That an engine does not run on a chip, and which engines do; empty if it does."""
    if pairs(engine, chip):
        return ""
    row = rules(engine)
    gone = f" ({row.archived})" if row.archived else ""
    return (
        f"{engine} does not run on {chip.title}{gone}: it runs on {row.runs}; take --engine "
        f"{' or '.join(current_engines(chip))}"
    )


def format_refusal(engine: str, chip: Chip, model: Transformer, plan: ServingPlan) -> str:
    """That an engine has no kernels for a plan's formats on a chip, and which it has; empty if it has them."""
    if (table_entry(plan.weights), plan.compute) not in pairs(engine, chip):
        return _no_pair(engine, chip, model, plan.weights, plan.compute)
    dtypes = caches(engine, chip)
    if plan.kv not in dtypes:
        nearest = min(dtypes, key=lambda dtype: abs(bits(dtype) - bits(plan.kv)))
        return (
            f"{engine} has no KV cache in {plan.kv} on {chip.title}, only {', '.join(dtypes)}; "
            f"take --kv-dtype {nearest}"
        )
    broken = restriction(engine, chip, divisible(model).latent, ServingPlan(kv=plan.kv))
    return f"{broken.why}; take {broken.take}" if broken.why else ""


def model_caches(engine: str, chip: Chip, model: Transformer) -> tuple[str, ...]:
    """Formats of the KV cache that an engine supports on a chip for a model.

    >>> from dragonscale.models import load_model
    >>> from dragonscale.physics.hardware import load_chip
    >>> [model_caches("sglang", load_chip("b200"), load_model(name))[-1] for name in ("llama3-70b", "deepseek-v3")]
    ['nvfp4', 'fp8']
    """
    latent = divisible(model).latent
    return tuple(kv for kv in caches(engine, chip) if not restriction(engine, chip, latent, ServingPlan(kv=kv)).why)


NARROW_PRODUCTS = ("fp8", "mxfp8", "nvfp4", "mxfp4")
"""Formats that some chips multiply natively and others only store."""


def stored_note(chip: Chip, plan: ServingPlan) -> str:
    """A note that a chip only stores weights of a format that others multiply, and what it multiplies instead.

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
    """That an engine does not run a pair of formats on a chip, why, and the nearest pair that it runs."""
    supported, product = pairs(engine, chip), compute.removesuffix("_block")
    if not chip.format(weights):
        why = f"{chip.title} neither multiplies nor stores {weights}"
    elif not chip.format(product):
        why = f"{chip.title} has no {product} matmul: it has none"
    elif chip.format(product) != "native":
        why = f"{chip.title} has no {product} matmul: it stores it and multiplies something wider"
    else:
        why = f"{engine} has no kernels for {pair_word(weights, compute)} on {chip.title}"
    listed = ", ".join(pair_words(supported))
    near_weights, near_compute = _nearest_pair(engine, chip, model, weights, compute)
    if near_weights == near_compute:
        flags = f"--dtype {near_weights}"
    else:
        flags = f"--weights {near_weights} --compute {near_compute}"
    return f"{why}; {engine} serves there in {listed}: take {flags}"


USUAL_BITS = {"exl2": "exl2_4", "exl3": "exl3_4"}
"""What to ask for of formats that have any number of bits."""


def _nearest_pair(engine: str, chip: Chip, model: Transformer, weights: str, compute: str) -> tuple[str, str]:
    """The supported pair of formats nearest to one that is not: the same weights, or as many bits, or the
    checkpoint's own formats."""
    supported = [(USUAL_BITS.get(stored, stored), product) for stored, product in pairs(engine, chip)]

    def distance(pair: tuple[str, str]) -> tuple[bool, bool, int]:
        return pair[0] != weights, pair[1] != compute, abs(bits(pair[0]) - bits(weights))

    nearest = min(supported, key=distance)  # the first of equals, which is the usual one
    has_same_bits = any(bits(stored) == bits(weights) for stored, _ in supported)
    if nearest[0] != weights and not has_same_bits:
        native = own_formats(engine, chip, model)
        if native is not None:
            return native.weights, native.compute
    return nearest


def context_refusal(model: Transformer, prompt: int, output: int) -> str:
    """That a request is longer than the model's context, and the prompt that would fit; empty if it fits."""
    if model.context is None or prompt + output <= model.context:
        return ""
    text = (
        f"{model.name} has a context of {model.context:,} tokens, and prompt and output are {prompt + output:,}; "
        f"ask for at most {model.context:,} together"
    )
    if output < model.context:
        text += f": --prompt {model.context - output}"
    if presets := presets_that_take(prompt + output):
        listed = [*presets[:4], "…"] if len(presets) > 4 else presets
        text += f", or a model that takes them ({', '.join(listed)})"
    return text


def shortened_prompt(text: str, prompt: int, output: int, context: int | None, name: str) -> tuple[int, str]:
    """A prompt that was written as all of a model's context, shortened by the output, and a note about it.

    With 128k people mean the model's longest request, and a request is prompt and output together.

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
    """Why a plan's degrees are not legal, or why the engine's release does not run it, with the nearest legal plan."""
    why = next(_broken_rules(row, chip, sizes, plan), "")
    if not why:
        broken = restriction(row.name, chip, sizes.latent, plan, role)
        if not broken.why:
            return ""
        if broken.take:
            return f"{broken.why}; take {broken.take}"
        why = broken.why
    alternatives = [_nearest_legal(row, chip, sizes, plan, role)]
    if row.wide:
        alternatives.append(f"--engine {server_of(row.name)}")
    take = ", or ".join(filter(None, alternatives))
    return f"{why}; take {take}" if take else why


def legal_widths(
    row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan, roles: tuple[str, ...] = (BOTH,)
) -> bool:
    """Whether a plan's degrees are legal and it runs in one of the roles; for plans that a search comes up with."""
    if next(_broken_rules(row, chip, sizes, plan), ""):
        return False
    return any(not restriction(row.name, chip, sizes.latent, plan, role, unasked=True).why for role in roles)


def _broken_rules(row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Each rule that a plan breaks, in the order in which engines check them."""
    yield from _wrong_axes(row, sizes, plan)
    degree = f"tensor={plan.tensor}"
    plan, tensor = _over_devices(plan, chip), plan.tensor
    if plan.tensor != tensor:
        degree += f" ({plan.tensor} devices)"
    if sizes.heads % plan.tensor:
        yield f"{sizes.name} has {sizes.heads} heads, which {degree} does not divide"
    for heads in sizes.kv_heads:
        # ranks share KV heads evenly, or have whole ones
        if plan.tensor % heads and heads % plan.tensor:
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
    """A plan in devices instead of chips: a TPU7x chip is two devices, and `tensor` is split on between them.

    A single chip may have a copy of the model on each device.
    """
    if chip.devices == 1 or plan.tensor == 1:
        return plan
    expert = plan.expert
    if expert == plan.data * plan.tensor:  # dealt out over all ranks
        expert *= chip.devices
    return replace(plan, tensor=plan.tensor * chip.devices, expert=expert)


def _because(row: EngineLegality, axis: str) -> str:
    """The engine's reason for not supporting an axis, in parentheses."""
    return f" ({row.because[axis]})" if axis in row.because else ""


def wide_refusal(engine: str, model: Transformer, chips: int = 0) -> str:
    """That wide expert parallelism makes no sense for a model without experts or for one chip; empty if it does."""
    experts = divisible(model).experts
    if not rules(engine).wide or (experts and chips != 1):
        return ""
    lacks = "one chip has no others" if experts else f"{model.name} has no experts"
    return f"{WIDE_WORDS.format(engine)}, and {lacks}; take --engine {server_of(engine)}"


def exchange_note(engine: str, chip: Chip, plan: ServingPlan) -> str:
    """A note that wide expert parallelism over several servers runs with another form of an engine.

    >>> from dragonscale.physics.hardware import load_chip
    >>> exchange_note("sglang", load_chip("h200"), ServingPlan(data=16, expert=16))[:70]
    'sglang gathers the tokens of all 16 ranks for the experts; wide expert'
    """
    form = rules(engine).wide_form
    if not form or rules(engine).wide or not plan.is_wide or plan.chips <= NODE or not pairs(form, chip):
        return ""
    return (
        f"{engine} gathers the tokens of all {plan.chips} ranks for the experts; wide expert parallelism over several "
        f"servers is run with an all-to-all, which --engine {form} has."
    )


WIDE_WORDS = "{} is data-parallel attention with experts over all ranks"


def _wrong_axes(row: EngineLegality, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Axes that an engine does not have, or that a model has nothing to split for."""
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
    """Ways to deal experts out that an engine does not run, or that do not divide a model's experts."""
    world, ways = plan.data * plan.tensor, plan.expert
    legal, allowed = world % ways == 0, f"a divisor of {world}"
    if row.expert == "world":
        # over none of the ranks or over all
        choices = {world} if row.wide else {1, world}
        legal, allowed = ways in choices, " or ".join(map(str, sorted(choices)))
    elif row.wide:
        legal = ways == world
    if not legal:
        yield f"with tensor={plan.tensor} and data={plan.data} expert is {allowed}, not {ways}{_because(row, 'expert')}"
    # redundant experts: copies fill the ranks up
    if ways > sizes.experts and not (row.redundant and ways <= 2 * sizes.experts):
        yield f"{sizes.name} has {sizes.experts} experts, fewer than expert={ways}"
    elif sizes.experts % ways and not (row.uneven or row.redundant):
        yield f"{sizes.name} has {sizes.experts} experts, which expert={ways} does not divide"


def _wrong_blocks(block: int, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Block-scaled weights: each rank's shard of a dim must be whole blocks, unless ranks have whole experts."""
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
        key_columns = max(keys // plan.tensor, 1) * head
        query_columns = queries * head // plan.tensor
        if plan.tensor > 1 and (query_columns % block or key_columns % block):
            yield (
                f"scales of blocks need multiples of {block}, and tensor={plan.tensor} leaves {key_columns} columns of "
                "keys"
            )


def _wrong_groups(group: int, sizes: Divisible, plan: ServingPlan) -> Iterator[str]:
    """Group-scaled weights: in layers whose inputs are split (down and output projections) each rank must have whole
    groups of inputs. Experts' kernels take smaller groups if these do not divide."""
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
        shard = size / ways
        if shard % MARLIN or (shard % (2 * MARLIN) and sizes.d_model % (2 * MARLIN)):
            yield (
                f"int4 kernels (Marlin) need multiples of {MARLIN}, and a hidden dim of {size} over {ways} ranks "
                f"leaves {shard:g}"
            )


def _nearest_legal(row: EngineLegality, chip: Chip, sizes: Divisible, plan: ServingPlan, role: str) -> str:
    """The settings that make a plan legal: other ways for experts first, then fewer ways of each axis."""
    for changes in _alternatives(row, sizes, plan):
        changed = replace(plan, **changes)  # pyright: ignore[reportArgumentType]
        if legal_widths(row, chip, sizes, changed, (role,)):
            return ",".join(f"{name}={value}" for name, value in changes.items() if value != getattr(plan, name))
    return ""


def _alternatives(row: EngineLegality, sizes: Divisible, plan: ServingPlan) -> Iterator[dict[str, object]]:
    """Changes to a plan that may make it legal, the smallest first."""
    world = plan.data * plan.tensor
    # what any legal plan must change
    required: dict[str, object] = {axis: 1 for axis in ("pipe", "width", "context") if not getattr(row, axis)}
    if plan.spread not in row.spread:
        required["spread"] = row.spread[0]
    if plan.data > 1 and (not sizes.experts or not row.data):
        required |= {"data": 1, "expert": min(plan.expert, plan.tensor)}
    if row.latent_data and sizes.latent and plan.data == 1:
        required |= {"data": plan.tensor, "tensor": 1, "expert": world if sizes.experts else 1}
    if row.wide and plan.data == 1:
        required |= {"data": world * plan.pipe, "tensor": 1, "expert": world * plan.pipe}
    if required:
        yield required
    if sizes.experts:
        divisors = [ways for ways in range(1, world + 1) if world % ways == 0 and ways != plan.expert]
        for ways in sorted(divisors, key=lambda ways: abs(math.log(ways / plan.expert))):
            yield required | {"expert": ways}
    for tensor in range(plan.tensor - 1, 0, -1):
        if plan.tensor % tensor == 0:
            yield required | {"tensor": tensor, "expert": 1}
            if sizes.experts:
                yield required | {"tensor": tensor, "expert": plan.data * tensor}
    if sizes.experts and row.data:
        for data in range(plan.data - 1, 0, -1):
            yield required | {"data": data, "expert": data * plan.tensor}
