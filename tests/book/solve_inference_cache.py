"""Solutions of the chapter on inference: the KV cache, what makes it smaller, and what is kept of it."""

from dataclasses import replace
from typing import Any

from dragonscale.course.closed_forms.decode_floor import critical_batch
from dragonscale.course.closed_forms.serving_fleet import largest_batch
from dragonscale.models import cache_bytes, load_model
from dragonscale.models.attention import Attention
from dragonscale.models.ffn import Mlp
from dragonscale.models.flops import Workload, forward_flops
from dragonscale.models.layer import Layer
from dragonscale.models.program import Section
from dragonscale.models.transformer import Transformer
from dragonscale.physics.hardware import load_chip
from dragonscale.physics.hardware.chip import dtype_bytes
from dragonscale.physics.numbers import minimum
from dragonscale.physics.rooflines import rates_of, symbol
from tests.book.casebook import solves

WINDOW = 1024


def stack(*mixers: Attention) -> Transformer:
    """A model of one layer for each attention."""
    return Transformer("layers", 4096, 32000, tuple(Layer(mixer, Mlp(16384)) for mixer in mixers))


def stored(model: Transformer, tokens: int, dtype: str = "bf16") -> float:
    """Bytes that one sequence keeps."""
    return sum(cache_bytes(model.program().sections, tokens, dtype).values())


def read(model: Transformer, tokens: int, dtype: str = "bf16") -> float:
    """Bytes of keys and values that a decode step reads for one sequence: every layer attends, whoever
    keeps the cache."""
    total = 0.0
    for section in model.program().sections:
        reach = minimum(tokens, section.span) if section.span is not None else tokens
        attends = [op for op in section.ops if op.function == "attend"]
        arrays = [array for op in attends for array in op.inputs[1:]]
        total += sum(section.size(array, b=1, s=reach) for array in arrays) * section.repeat * dtype_bytes(dtype)
    return total


@solves("inference.kv_cache_formula")
def cache_formula(_: dict[str, Any]) -> dict[str, Any]:
    letters = {"k": symbol("K"), "h": symbol("H"), "g": symbol("H")}
    block = stack(Attention(8, 2, 128)).program().sections[1]
    block = replace(block, dims=block.dims | letters, repeat=symbol("L"))
    elements = cache_bytes([block], symbol("T"), "int8")["block"]
    return {"formula": elements * symbol("bytes_per_float")}


# Tricks.


@solves("inference.local_attention_kv")
def windows(given: dict[str, Any]) -> dict[str, Any]:
    wide, narrow = Attention(32, 8, 128), Attention(32, 8, 128, window=given["window"])
    count = given["n_global"] + given["n_local"]
    mixed = stack(*[wide] * given["n_global"], *[narrow] * given["n_local"])
    return {"relative": stored(mixed, given["S"]) / stored(stack(*[wide] * count), given["S"])}


@solves("inference.kv_sharing_figure")
def shared_caches(given: dict[str, Any]) -> dict[str, Any]:
    """The first layer of a group keeps the cache, the others borrow it; all global layers are one group."""
    own, borrowed = Attention(32, 8, 128), Attention(32, 8, 128, kv="borrowed")
    layers = [own, *[borrowed] * (given["global_layers"] - 1)]
    for group in given["local_groups"]:
        layers += [replace(own, window=WINDOW), *[replace(borrowed, window=WINDOW)] * (group - 1)]
    assert len(layers) == given["layers"]
    sections = stack(*layers).program().sections

    def layers_with(function: str, local: bool) -> int:
        return sum(
            section.repeat
            for section in sections
            if (section.span is not None) == local and any(op.function == function for op in section.ops)
        )

    return {
        "unique_global": layers_with("cache", local=False),
        "unique_local": layers_with("cache", local=True),
        "local_layers": layers_with("attend", local=True),
    }


@solves("inference.kv_tricks_effects")
def what_tricks_save(_: dict[str, Any]) -> dict[str, Any]:
    plain = Attention(32, 32, 128)
    tricks = {
        "gqa": stack(*[replace(plain, n_kv_heads=8)] * 6),
        "local_attention": stack(*[replace(plain, window=WINDOW)] * 6),
        "cross_layer_sharing": stack(*[plain, replace(plain, kv="borrowed")] * 3),
    }
    before, tokens = stack(*[plain] * 6), 8 * WINDOW

    def effect(memory: bool, reads: bool) -> str:
        return {(True, True): "memory and reads", (True, False): "memory only (reads repeated)"}[memory, reads]

    answer = {
        name: effect(stored(model, tokens) < stored(before, tokens), read(model, tokens) < read(before, tokens))
        for name, model in tricks.items()
    }
    within = tricks["local_attention"]
    if read(within, WINDOW) == read(before, WINDOW):
        answer["local_attention"] += " beyond the window"
    smaller = [measure(before, tokens, "int8") < measure(before, tokens) for measure in (stored, read)]
    v5e = rates_of(load_chip("v5e"))
    lower = critical_batch(v5e, weights="int8") < critical_batch(v5e)
    answer["quantization"] = effect(*smaller) + ("; lowers B_crit" if lower else "")
    return answer | {"paged_attention": paging(before.program().sections, tokens)}


def paging(sections: tuple[Section, ...], longest: int) -> str:
    """Pages against a reservation of the longest sequence for each, over sequences of all lengths up to it."""
    lengths = range(WINDOW // 2, longest, WINDOW)
    need = sum(sum(cache_bytes(sections, length).values()) for length in lengths)
    paged = sum(sum(cache_bytes(sections, length, page=16).values()) for length in lengths)
    padded = len(lengths) * sum(cache_bytes(sections, longest).values())
    assert need <= paged < 1.01 * need < padded
    return "removes padding; runtime only"


# Keeping caches.


@solves("inference.prefix_cache_saving")
def shared_prefix(given: dict[str, Any]) -> dict[str, Any]:
    """What is left to compute of the linear operations, which are nearly all of a prefill."""
    sections = load_model("llama3-8b").program().sections
    count, new = given["n"], given["n"] - given["shared"]
    rest, whole = (forward_flops(sections, Workload(1, queries, count))["mlp"] for queries in (new, count))
    return {"fraction": rest / whole}


@solves("inference.host_dram_cache")
def host_memory(given: dict[str, Any]) -> dict[str, Any]:
    chip, dram = load_chip("v5e").reading("jax"), given["dram"] * 2**30
    hbm = chip.host_chips * chip.hbm.capacity
    assert round(hbm / 2**30) == given["hbm"]
    return {"ratio": dram / hbm, "caches_dram": largest_batch(dram, 0, given["kv"])}
