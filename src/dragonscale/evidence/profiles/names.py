"""What names say: kernels, operators of frameworks and XProf's categories; the knowledge itself is in `kernels.toml`
and `operators.toml`.

>>> known_kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)").kind
'reduce_scatter'
>>> (
...     known_kernel("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT").kind,
...     dtype_of("nvjet_tst_256x128_64x4_2x1_v_bz_coopA_TNT"),
... )
('matmul', 'bf16')
>>> inductor("triton_red_fused__fused_rms_norm__to_copy_embedding_0").kind
'reduction'
>>> inductor("triton_poi_fused__to_copy_4").kind, operator_kind("aten::_scaled_dot_product_flash_attention")
('copy', 'attention')
"""

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

_LONGEST = 2000
"""Characters of a name that are looked at: templates of C++ give names of many thousands."""
_SHORT = 200
_SHORTEST_WORD = 3
_NOT_PLAIN = tuple(map(re.compile, (r"\\.", r"\[[^\]]*\]", r"\([^()]*\)", r".(?:[?*]|\{[^}]*\})", r"\+")))
"""What a pattern has beside words: escapes, classes, groups, characters that may be missing, repetitions."""
_INDUCTOR = re.compile(r"triton_(?P<form>poi|red|per|tem|mm|for|split_scan|scan)_fused_(?P<ops>.*)")
_HEAVIEST = ("attention", "grouped matmul", "matmul", "reduction", "gather", "elementwise", "copy")


class KernelRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of `kernels.toml`."""

    match: str
    kind: str
    software: str
    section: str = ""
    phase: str = ""
    what: str = ""

    short: bool = False


class OperatorTables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`operators.toml`: names by kind, and words by part of the model."""

    words: dict[str, list[str]]
    parts: dict[str, list[str]]
    categories: dict[str, list[str]]
    collectives: dict[str, str]
    dtypes: dict[str, str]


@cache
def table(name: str) -> dict[str, Any]:
    """A data file of this folder."""
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


@cache
def kernel_rules() -> tuple[tuple[re.Pattern[str], KernelRule], ...]:
    """The rules, in order."""
    rules = msgspec.convert(table("kernels.toml")["kernel"], tuple[KernelRule, ...])
    return tuple((re.compile(rule.match), rule) for rule in rules)


@cache
def _rule_words() -> tuple[tuple[str, ...] | None, ...]:
    return tuple(needed(pattern.pattern) for pattern, _ in kernel_rules())


def needed(pattern: str) -> tuple[str, ...] | None:
    """Words of which one must be in whatever a pattern matches; None where that cannot be told.

    To look for a plain word is a hundred times faster than to try a pattern of many alternatives that ignores case.
    Words are in lower case, for names in lower case: more names pass than match, and none that matches is lost.

    >>> needed(r"(?i)^nvjet|_nvjet_|sdpa\\w*_(bprop|bwd)"), needed(r"(silu|gelu)\\w*"), needed(r"a?b*c|xyz")
    (('nvjet', '_nvjet_', 'sdpa'), None, None)
    """
    text = pattern.removeprefix("(?i)").lower()
    for odd in _NOT_PLAIN:
        while (plain := odd.sub("\0", text)) != text:  # groups from the inside out
            text = plain
    words = [max(re.findall(r"[\w: ,-]+", part), key=len, default="") for part in text.split("|")]
    return tuple(dict.fromkeys(words)) if min(map(len, words)) >= _SHORTEST_WORD else None


@cache
def operator_tables() -> OperatorTables:
    """The tables of operators."""
    return msgspec.convert(table("operators.toml"), OperatorTables)


@cache
def _kind_of(table: str) -> dict[str, str]:
    return {name: kind for kind, names in getattr(operator_tables(), table).items() for name in names}


@lru_cache(maxsize=65536)
def known_kernel(name: str) -> KernelRule | None:
    """The first rule that a kernel's name meets."""
    name, is_long = name[:_LONGEST], len(name) > _SHORT
    lower = name.lower()
    for (pattern, rule), words in zip(kernel_rules(), _rule_words(), strict=True):
        if (rule.short and is_long) or not (words is None or any(map(lower.__contains__, words))):
            continue
        if pattern.search(name):
            return rule
    return None


@lru_cache(maxsize=65536)
def inductor(name: str) -> KernelRule | None:
    """What a kernel is that PyTorch's Inductor made: its name lists the operators that were fused."""
    match = _INDUCTOR.match(name[:_LONGEST])
    if match is None:
        return None
    ops = re.sub(r"_\d+$", "", match["ops"])
    found = set(words_in(ops))
    kinds = {_kind_of("words")[word] for word in found}
    kind = next((each for each in _HEAVIEST if each in kinds), "elementwise")
    if match["form"] in ("red", "per") and kind not in ("attention", "grouped matmul", "matmul"):
        kind = "reduction"
    if match["form"] in ("tem", "mm") and kind not in ("attention", "grouped matmul"):
        kind = "matmul"
    if match["form"] == "for":
        return KernelRule("", "elementwise", "Inductor", "optimizer", "update")
    what = ""
    if kind == "reduction":
        what = "norm" if "_norm" in ops else "softmax" if "_softmax" in ops and "log_softmax" not in ops else ""
    elif any(_named(word, ops) for word in ("silu", "gelu")):
        what = "activation"
    return KernelRule("", kind, "Inductor", section_word(ops), "backward" if "backward" in ops else "", what)


def words_in(ops: str) -> list[str]:
    """The operators that a fused kernel's name joins with `_`: at each place the longest one that is known.

    >>> words_in("_fused_rms_norm__to_copy__unsafe_view_add_embedding")
    ['_fused_rms_norm', '_to_copy', '_unsafe_view', 'add', 'embedding']
    """
    known, found, at = _kind_of("words"), list[str](), 0
    while at < len(ops):
        ends = [at + len(word) for word in known if ops.startswith(word, at) and f"{ops}_"[at + len(word)] == "_"]
        if ends:
            found.append(ops[at : max(ends)])
        at = 1 + (max(ends) if ends else f"{ops}_".index("_", at))
    return found


def section_word(text: str) -> str:
    """The part of the model that the operators named in a text belong to, where they leave no doubt."""
    parts = operator_tables().parts.items()
    return next((part for part, words in parts if any(_named(word, text) for word in words)), "")


def _named(word: str, text: str) -> bool:
    return word in text if len(word) > 4 else bool(re.search(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", text))


@lru_cache(maxsize=65536)
def operator_kind(caller: str) -> str:
    """The kind of what an operator of a framework does; `caller` may be a chain, of which the innermost known operator
    counts.

    >>> (
    ...     operator_kind("autograd::engine::evaluate_function: MmBackward0/MmBackward0/aten::mm"),
    ...     operator_kind("c10d::allreduce_"),
    ... )
    ('matmul', 'all_reduce')
    """
    for one in reversed(caller[-_LONGEST:].split("/")):
        name = one.split(",", 1)[0].rsplit("::", 1)[-1].strip()  # NVTX ranges say more behind a comma
        plain = re.sub(r"_?(backward|Backward)\d*(_data|_fused)?$", "", name)
        kind = _kind_of("words").get(name) or _kind_of("words").get(plain) or _collective(one)
        if kind:
            return kind
        if any(word in name for word in ("attention", "flash_attn", "FlashAttn", "fused_attn")):
            return "attention"
    return ""


def _collective(name: str) -> str:
    squeezed = re.sub(r"[_\-]", "", name.lower())
    if not any(mark in name for mark in ("c10d", "nccl", "dist", "FSDP", "fsdp", "vllm::", "_c10d", "sglang")):
        return ""
    return next((kind for word, kind in operator_tables().collectives.items() if word in squeezed), "")


def category_kind(category: str) -> str:
    """The kind that a profiler's category says, or an empty text."""
    return _kind_of("categories").get(category.lower().strip(), "")


_WRAPS = re.compile(r"\w*elementwise_kernel\w*|multi_tensor_apply_kernel|reduce_kernel|index_elementwise_kernel")
"""Kernels of PyTorch that run a function which is named in their template."""
_INNER = re.compile(r"\w+(?:_kernel(?:_cuda|_impl)?|Functor\w*|Ops?)\b")


def short_name(name: str, most: int = 48) -> str:
    """A kernel's name as short as a table or a sentence needs it: without namespaces and template arguments, but with
    the function that is run where the kernel only hands it out.

    >>> short_name(
    ...     "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::Base&)>(int)",
    ...     80,
    ... )
    'bfloat16_copy_kernel_cuda (vectorized_elementwise_kernel)'
    >>> (
    ...     short_name("at::native::(anonymous namespace)::cunn_SoftMaxForward<8>(float*)"),
    ...     short_name("PjRt::Client::Execute"),
    ... )
    ('cunn_SoftMaxForward', 'PjRt::Client::Execute')
    """
    if "<" in name or "(anonymous namespace)" in name:
        plain = re.sub(r"\w+::", "", name[:_LONGEST].removeprefix("void ").replace("(anonymous namespace)::", ""))
        name, _, rest = plain.partition("<")
        name = name.split("(", 1)[0].strip() or plain
        inner = _INNER.search(rest) if _WRAPS.fullmatch(name) else None
        name = f"{inner[0]} ({name})" if inner else name
    return name if len(name) <= most else f"{name[: most - 1]}…"


@lru_cache(maxsize=65536)
def dtype_of(name: str) -> str:
    """The type of the numbers that a kernel multiplies, where its name says it; cuDNN writes f16 for both types of 16
    bits."""
    if name.startswith("cudnn_generated"):
        return ""
    dtypes = operator_tables().dtypes.items()
    return next((dtype for dtype, pattern in dtypes if re.search(pattern, name[:_LONGEST])), "")
