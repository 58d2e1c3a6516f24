"""The part of the model that an op belongs to and the phase of the step it runs in, read from the names around it:
JAX's scopes, PyTorch's modules and operators, source files.

A path is read component by component with the words of `scopes.toml`. The innermost part counts
(`loss/decoder/self_attention/query` is attention), but what is inside experts belongs to them, and whatever an
optimizer holds is its own.

>>> section_of("jit(train_step)/transpose(jvp(decoder))/layers/self_attention/query/dot_general")
SectionWords(section='attention', what='QKV', norm=False)
>>> section_of(
...     "nn.Module: LlamaForCausalLM_0/nn.Module: LlamaDecoderLayer_3/nn.Module: LlamaMLP_3/nn.Module: Linear_26"
... )
SectionWords(section='mlp', what='', norm=False)
>>> (
...     section_of("model.layers.3.block_sparse_moe.gate").section,
...     section_of("decoder/layers/pre_self_attention_layer_norm/mul"),
... )
('router', SectionWords(section='attention', what='', norm=True))
"""

import re
from collections.abc import Iterable
from functools import cache, lru_cache

import msgspec

from dragonscale.evidence.profiles.names import table

_LONGEST = 2000
_WRAPPERS = re.compile(
    r"(?:transpose|jvp|vmap|jit|pjit|remat\d?|checkpoint|custom_jvp|custom_vjp\w*|shard_map|xmap|named|scan|while|cond)\((?P<inside>.*)\)"
)
_NUMBER = re.compile(r"(?:[_.\[#]\d+\]?)+$")
_LOOPS = ("while", "scan", "body", "layers", "layer", "blocks")


class SectionWords(msgspec.Struct, frozen=True):
    """What names say: the part of the model, the tensor or op, and whether it is a norm (whose section is the part it
    feeds)."""

    section: str = ""
    what: str = ""
    norm: bool = False


class ScopeRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of `scopes.toml`."""

    word: str
    section: str
    what: str = ""
    weak: bool = False
    within: tuple[str, ...] = ()
    covers: bool = False
    last: bool = False
    norm: bool = False


@cache
def _rules() -> tuple[list[tuple[re.Pattern[str], ScopeRule]], list[tuple[re.Pattern[str], ScopeRule]]]:
    scopes, sources = (msgspec.convert(table("scopes.toml")[name], list[ScopeRule]) for name in ("scope", "source"))
    return [(re.compile(rule.word), rule) for rule in scopes], [(re.compile(rule.word), rule) for rule in sources]


@lru_cache(maxsize=65536)
def components(scope: str) -> tuple[str, ...]:
    """The names of a path, without what JAX's transformations wrap around them and without numbers at their ends.

    >>> components("jit(step)/transpose(jvp(Model))/layers_3/attention.q_proj/dot_general")
    ('step', 'model', 'layers', 'attention', 'q_proj', 'dot_general')
    """
    found: list[str] = []
    for part in _split(scope[:_LONGEST]):
        name = part.removeprefix("nn.Module: ").strip()
        while match := _WRAPPERS.fullmatch(name):
            name = match["inside"]
        for each in _split(name) if "/" in name else (name,):
            whole = each.lower()
            pieces = [whole] if _keeps_dots(whole) else whole.split(".")
            found += [_NUMBER.sub("", piece) for piece in pieces if piece and not piece.isdigit()]
    return tuple(found)


def _keeps_dots(name: str) -> bool:
    return name.startswith("optimizer.") or name.endswith((".attend", ".step"))


def _split(path: str) -> list[str]:
    """Cut at `/` outside brackets."""
    if "(" not in path:
        return path.split("/")
    parts, depth, start = list[str](), 0, 0
    for place, letter in enumerate(path):
        depth += (letter == "(") - (letter == ")")
        if letter == "/" and depth <= 0:
            parts.append(path[start:place])
            start = place + 1
    return [*parts, path[start:]]


@lru_cache(maxsize=65536)
def _rules_of(name: str) -> tuple[ScopeRule, ...]:
    return tuple(rule for pattern, rule in _rules()[0] if pattern.fullmatch(name))


@lru_cache(maxsize=65536)
def section_of(scope: str) -> SectionWords:
    """The part of the model that a path of names says; empty where it says none."""
    names = components(scope)
    hits = [(place, rule) for place, name in enumerate(names) for rule in _rules_of(name)]
    covering = next((rule for _, rule in hits if rule.covers), None)
    if covering:
        return SectionWords(covering.section)
    firm = [rule for _, rule in hits if not (rule.weak or rule.last or rule.norm)]
    if firm:
        section = _inner(firm)
        inside = [rule for _, rule in hits if rule.weak and section in rule.within]
        section = "router" if section == "experts" and any(rule.section == "router" for rule in inside) else section
        parts = (section, "mlp") if section == "experts" else (section,)
        named = [rule.what for rule in (*firm, *inside) if rule.what and rule.section in parts]
        return SectionWords(section, named[-1] if named else "", any(rule.norm for _, rule in hits))
    norms = [rule.section for _, rule in hits if rule.norm]
    if norms:
        return SectionWords(next((one for one in reversed(norms) if one != "norm"), "norm"), "", True)
    for place, rule in hits:
        if (rule.last or (rule.weak and not rule.within)) and not any(name in _LOOPS for name in names[place:]):
            return SectionWords(rule.section, rule.what)
    return SectionWords()


def _inner(firm: list[ScopeRule]) -> str:
    """The innermost part; an MLP inside experts is one of them."""
    sections = [rule.section for rule in firm]
    if "experts" in sections:
        return "router" if sections[-1] == "router" else "experts"
    return sections[-1]


@lru_cache(maxsize=65536)
def section_of_source(source: str) -> str:
    """The part that the file of a source line says, by its name."""
    text = source[:_LONGEST].lower()
    return next((rule.section for pattern, rule in _rules()[1] if pattern.search(text)), "")


def files_tell_parts(sources: Iterable[str]) -> bool:
    """Whether the files of some source lines tell parts of a model apart: a whole program in one `mlp.py` says nothing
    of its parts.

    >>> files_tell_parts(["mlp.py:3", "mlp.py:9", ""]), files_tell_parts(["model/attention.py:7", "model/mlp.py:3"])
    (False, True)
    """
    return len({section_of_source(source) for source in sources if source} - {""}) > 1


@cache
def _phases(of: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["match"]), row["phase"]) for row in table("scopes.toml")["phase"] if of in row["of"])


@lru_cache(maxsize=65536)
def _phase(of: str, text: str) -> str:
    return next((phase for pattern, phase in _phases(of) if pattern.search(text)), "")


def phase_of_scope(scope: str) -> str:
    """The phase that a path of names says; empty where it says none.

    >>> scopes = ("jit(step)/jvp(Model)/layers/mlp/dot_general", "jit(step)/transpose(jvp(Model))/mlp/transpose")
    >>> [phase_of_scope(scope) for scope in scopes]
    ['forward', 'backward']
    >>> phase_of_scope("jit(step)/transpose(jvp(Model))/while/body/checkpoint/rematted_computation/mlp/dot_general")
    'recompute'
    """
    return _phase("scope", scope)


def phase_of_caller(caller: str) -> str:
    """The phase that a chain of PyTorch's operators says.

    >>> phase_of_caller("autograd::engine::evaluate_function: MmBackward0/MmBackward0/aten::mm")
    'backward'
    >>> phase_of_caller("aten::linear/aten::addmm")
    ''
    """
    return _phase("caller", caller)


def phase_of_module(module: str) -> str:
    """The phase that the name of a program says (`jit_decode_step`)."""
    return _phase("module", module.replace("_", " "))
