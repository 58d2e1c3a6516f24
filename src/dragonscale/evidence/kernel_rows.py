"""What a row of measured kernels means: which kernel of which chip, of what sizes, and the seconds it took.

The layout is that of NVIDIA's kernel database (aiconfigurator-core): one file per kind, told by its columns. What its rows
leave unsaid: narrow matmuls include bringing bf16 activations to their format; block-scaled ones were timed without
graphs, so the host's time is a floor; prefill attention includes writing the cache; decoding repeats one kernel, so a
small cache is found in the last-level cache; experts are timed on the busiest chip.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragonscale.errors import InputError
from dragonscale.evidence.score import number
from dragonscale.hardware import load_chip
from dragonscale.kernels import (
    attention_seconds,
    decode_attention_seconds,
    dispatch_seconds,
    grouped_matmul_seconds,
    kernel_profile_for,
    matmul_seconds,
    quantise_seconds,
)
from dragonscale.kernels.dtypes import format_name
from dragonscale.kernels.profile import KernelProfile
from dragonscale.kernels.routing import Routing

if TYPE_CHECKING:
    import numpy

COLUMNS: dict[str, tuple[str, ...]] = {
    "gemm": ("system", "gemm_dtype", "m", "n", "k", "latency_us"),
    "prefill": ("system", "kernel", "kv_dtype", "q_heads", "kv_heads", "head_dim", "batch_size", "isl", "latency_us"),
    "decode": ("system", "kernel", "kv_dtype", "q_heads", "kv_heads", "head_dim", "batch_size", "kv_len", "latency_us"),
    "moe": (
        "system", "kernel_source", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
        "moe_tp_size", "moe_ep_size", "distribution", "latency_us",
    ),
}  # fmt: skip
"""The columns that each kind of file has."""

_SIZES = {
    "gemm": ("m", "n", "k"),
    "prefill": ("batch_size", "isl", "q_heads", "kv_heads", "head_dim"),
    "decode": ("batch_size", "kv_len", "q_heads", "kv_heads", "head_dim"),
    "moe": ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size", "moe_tp_size"),
}
_FORMATS = {"gemm": "gemm_dtype", "prefill": "kv_dtype", "decode": "kv_dtype", "moe": "moe_dtype"}

UNGATED = {(1024, 2688, 512), (2048, 5120, 512), (2688, 1856, 128)}
"""(hidden, inner, experts) of NVIDIA's Nemotron mixtures, whose experts have two matrices; the rows do not say so."""

_IMPLEMENTATIONS = (
    ("marlin", "marlin"), ("cutlass", "cutlass"), ("oaitriton", "oai_triton"), ("trtllm", "trtllm"), ("triton", "triton"),
)  # fmt: skip
"""Words in the name of a library's kernels for experts, and the implementation in the profiles."""


class Skip(Exception):
    """A row that cannot be scored; the message is the reason."""


@dataclass(frozen=True)
class Key:
    """What rows that can be predicted in one call have in common."""

    kind: str
    chip: str
    dtype: str
    implementation: str = ""
    routing: Routing = ""
    gated: bool = True

    @property
    def group(self) -> str:
        """A label for tables."""
        return f"{self.kind} {self.dtype} {self.chip}"


@dataclass(frozen=True)
class Case:
    """A measured kernel in the model's terms; `sizes` are in the order of its kind."""

    id: str
    source: str
    key: Key
    sizes: tuple[float, ...]
    seconds: float


def read_case(kind: str, row: dict[str, str]) -> Case:
    """A row of a file of one kind."""
    try:
        chip = load_chip(row["system"]) if not row["system"].endswith(".toml") else None
    except InputError:
        chip = None
    if chip is None:
        raise Skip(f"unknown system {row['system'][:40]!r}" if row["system"] else "system not stated")
    written = row[_FORMATS[kind]]
    try:
        dtype = format_name(written)
    except InputError:
        raise Skip(f"unknown number format {written[:40]!r}" if written else "number format not stated") from None
    sizes = tuple(_whole(row, column) for column in _SIZES[kind])
    latency = number(row["latency_us"])
    if latency is None:
        raise Skip("latency not a positive number")
    source = row.get("kernel") or row.get("kernel_source") or "gemm"
    key = Key(kind, chip.name, dtype)
    if kind == "prefill" and "decode" in source.lower():
        key = Key("decode", chip.name, dtype)
    if kind == "moe":
        key = _experts(row, chip.name, dtype, sizes)
    labels = [row["system"], source, written, *(row[column] for column in _SIZES[kind])]
    if kind == "moe":
        labels.append(row["distribution"])
    return Case("/".join([kind, *labels]), source, key, sizes, latency / 1e6)


def _whole(row: dict[str, str], column: str) -> float:
    value = number(row[column])
    if value is None or value != int(value) or value > 1e9:
        raise Skip(f"{column} not a positive whole number")
    return value


def _experts(row: dict[str, str], chip: str, dtype: str, sizes: tuple[float, ...]) -> Key:
    _, hidden, inner, picks, experts, chips, _ = sizes
    if picks > experts or chips > experts:
        raise Skip("more experts per token, or chips, than experts")
    known = kernel_profile_for(chip).grouped.of(dtype)
    name = row["kernel_source"].lower().replace("_", "")
    implementation = next((who for word, who in _IMPLEMENTATIONS if word in name), "")
    if implementation == "trtllm" and "modular" in name:
        implementation = "trtllm_modular"
    if implementation not in known:
        raise Skip(f"no model of {implementation or 'unnamed'} experts in {dtype} on {chip}")
    gated = (int(hidden), int(inner), int(experts)) not in UNGATED
    return Key("moe", chip, dtype, implementation, _routing(row["distribution"]), gated)


def _routing(text: str) -> Routing:
    name = text.strip().lower()
    if name in ("balanced", "random"):
        return name
    exponent = number(name.removeprefix("power_law_"))
    if name.startswith("power_law_") and exponent is not None and exponent < 2:
        return exponent
    raise Skip(f"unknown distribution {text[:40]!r}" if text else "distribution not stated")


def buckets(cases: Sequence[Case]) -> dict[Key, list[int]]:
    """Positions of the cases that can be predicted together."""
    found: dict[Key, list[int]] = {}
    for place, case in enumerate(cases):
        found.setdefault(case.key, []).append(place)
    return found


def predict_alike(key: Key, sizes: Sequence[Any], profile: KernelProfile) -> Any:
    """Seconds that the model expects for cases of one key; `sizes` are arrays, one for each size of the kind."""
    from dragonscale.numbers import maximum

    if key.kind == "gemm":
        m, n, k = sizes
        taken = matmul_seconds(m, n, k, key.dtype, profile) + quantise_seconds(m, k, key.dtype, profile)
        return maximum(taken, dispatch_seconds(m, key.dtype, profile))
    if key.kind == "prefill":
        batch, tokens, q_heads, kv_heads, head_dim = sizes
        return attention_seconds(
            batch, tokens, tokens, q_heads, kv_heads, head_dim, key.dtype, profile, write_cache=True
        )
    if key.kind == "decode":
        batch, keys, q_heads, kv_heads, head_dim = sizes
        return decode_attention_seconds(batch, keys, q_heads, kv_heads, head_dim, key.dtype, profile, warm=True)
    tokens, hidden, inner, picks, experts, chips, tensor = sizes
    return grouped_matmul_seconds(
        tokens, hidden, inner, picks, experts, key.dtype, profile,
        chips=chips, tensor=tensor, routing=key.routing, gated=key.gated, implementation=key.implementation,
    )  # fmt: skip


def sizes_of(cases: Sequence[Case]) -> "list[numpy.ndarray]":
    """The sizes of cases of one key as arrays."""
    import numpy

    return [numpy.array(column) for column in zip(*(case.sizes for case in cases), strict=True)]


def predict(cases: Sequence[Case]) -> list[float]:
    """Seconds that the model expects for each case."""
    found = [0.0] * len(cases)
    for key, places in buckets(cases).items():
        profile = kernel_profile_for(key.chip)
        expected = predict_alike(key, sizes_of([cases[place] for place in places]), profile)
        for place, value in zip(places, expected, strict=True):
            found[place] = float(value)
    return found
