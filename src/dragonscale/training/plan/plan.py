"""A plan: the degree of each kind of parallelism, and what is kept, sharded and recomputed.

Mesh axes, slowest first: `pipe` splits the layers, `data` copies the model, `fsdp` splits the batch and the state,
`expert` splits the batch and the experts, `context` splits the sequence, `tensor` splits heads and hidden dims (and the
sequence between blocks). Their product is the number of chips.

>>> plan = plan_of_words("fsdp=16,tensor=4,microbatch=2,remat=block")
>>> plan.chips, plan.remat, plan.zero
(64, 'block', 3)
>>> print(plan)
fsdp=16,tensor=4,microbatch=2,remat=block
"""

import re
from dataclasses import dataclass, fields, replace
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.models.activations import REMAT
from dragonscale.models.recompute_modules import MODULES, is_modules, read_modules
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.plan.unknown_setting import PlanWords, unknown_setting

AXES = ("pipe", "data", "fsdp", "expert", "context", "tensor")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zbv", "dualpipe", "dualpipev")
CONTEXTS = ("gather", "ring", "ulysses")
OPTIMIZERS = ("adam", "adam-bf16", "adam8", "adafactor", "muon", "sgd", "galore", "galore-layerwise", "lion")
FOLDS = ("tensor", "context")
OFFLOADS = ("none", "optimizer", "parameters", "nvme")
HOSTED_STATE = ("optimizer", "parameters", "nvme")
"""Offloads that keep master copy and optimizer state off the chip; the second keeps the weights there, too, and the
third all of it on the host's disks, through its memory (ZeRO-Infinity)."""
HOSTED_WEIGHTS = ("parameters", "nvme")
POLICIES = (*REMAT, "offload")


@dataclass(frozen=True)
class Plan:
    """One way to run a training step. `microbatch` counts sequences per data-parallel chip and pass; `virtual` is the
    number of stages each pipeline rank holds; `zero` says how much of the state `fsdp` splits (1 optimizer, 2 gradients
    too, 3 weights too). `layout` deals layers to stages: `even`; `ends` counts the embedding and the head as a layer
    each; `7-8-8-7` is the layers of every stage in order. `context_by` says how attention sees the keys of other chips:
    gathered, by ring attention, or by trading sequence for heads (Ulysses). `etp` slices every expert over `tensor`;
    otherwise whole experts are spread over it. `fold` spreads experts over `context` as well (`context`), or not
    (`tensor`). `offload` keeps the optimizer's state in the host's memory (`optimizer`), the weights too, which each
    layer fetches (`parameters`), or what so many layers save (`activations:20`). `remat` is a policy of `POLICIES`,
    modules to recompute, joined by `+` (`dragonscale.models.recompute_modules`), or `block:5`: five layers of every
    chunk of a pipeline rank are recomputed whole, the others keep everything."""

    data: int = 1
    fsdp: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1
    pipe: int = 1
    microbatch: int = 1
    virtual: int = 1
    remat: str = "none"
    zero: int = 3
    dtype: str = "bf16"
    schedule: str = "1f1b"
    sequence: bool = True
    context_by: str = "gather"
    layout: str = "even"
    etp: bool = False
    fold: str = "tensor"
    optimizer: str = "adam"
    offload: str = "none"

    def __getitem__(self, name: str) -> Any:
        """A setting by its name, as `--json` prints it: `plan["tensor"]`."""
        return getattr(self, name)

    @property
    def all_settings(self) -> dict[str, Any]:
        """Every setting by its name, defaults included."""
        return {field.name: self[field.name] for field in fields(self)}

    @property
    def chips(self) -> int:
        """Chips of the whole mesh."""
        return self.data * self.fsdp * self.tensor * self.context * self.expert * self.pipe

    @property
    def replicas(self) -> int:
        """Ways the batch is split."""
        return self.data * self.fsdp * self.expert

    @property
    def ring(self) -> bool:
        """Whether attention is ring attention."""
        return self.context_by == "ring"

    @property
    def whole_replicas(self) -> bool:
        """Whether `fsdp=1` has to be said: a plan that gives `data` and ZeRO alone is read as sharded over `data`."""
        return self.data > 1 and self.fsdp == 1 and self.zero > 0

    def __str__(self) -> str:
        default = Plan()
        changed = [field.name for field in fields(self) if self[field.name] != default[field.name]]
        if self.whole_replicas:
            changed.insert(1, "fsdp")  # fsdp=1 after data=…
        return ",".join(f"{name}={_written(self[name])}" for name in changed) or "data=1"


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def effective(plan: Plan) -> Plan:
    """The plan with defaults for all settings that make no difference, so that two ways to write one split are equal.

    >>> print(effective(Plan(data=8, sequence=False, context_by="ring", zero=2)))
    data=8,zero=0
    """
    if plan.tensor == 1:
        plan = replace(plan, sequence=True, etp=False)
    if plan.context == 1:
        plan = replace(plan, context_by="gather", fold="tensor")
    if plan.fsdp * plan.context * plan.expert == 1:  # nothing is sharded, whatever the ZeRO stage
        plan = replace(plan, zero=0 if plan.data > 1 else Plan.zero)
    return plan


def differences(plan: Plan, other: Plan) -> dict[str, str]:
    """The settings of another plan that differ, by name.

    >>> differences(plan_of_words("cp2 ring"), plan_of_words("cp2"))
    {'context_by': 'gather'}
    """
    return {name: _written(value) for name, value in other.all_settings.items() if value != plan[name]}


SOME_LAYERS = "block:N"
BY_LAYERS = {SOME_LAYERS: "remat", "activations:N": "offload"}
"""Values that end in a number of layers, and the settings they belong to."""


def layers_of(word: str) -> int:
    """How many layers a value such as `block:5` names; 0 if it names none, or concerns all."""
    number = word.partition(":")[2]
    if not number.isdecimal():
        return 0
    return int(number)


def without_layers(word: str) -> str:
    """A value with N in place of its number of layers.

    >>> without_layers("block:5"), without_layers("block"), layers_of("block:5")
    ('block:N', 'block', 5)
    """
    kind, colon, _ = word.partition(":")
    if not colon:
        return word
    return f"{kind}:N"


def layer_policies(remat: str) -> tuple[str, ...]:
    """The policies that layers of a plan run under: two where only some of them are recomputed."""
    if without_layers(remat) == SOME_LAYERS:
        return "none", "block"
    return (remat,)


# How people write plans: the values of each setting, the letters of each degree, and older names.
_CHOICES = {"remat": POLICIES, "schedule": SCHEDULES, "optimizer": OPTIMIZERS, "offload": OFFLOADS, "fold": FOLDS}
_CHOICES |= {"context_by": CONTEXTS, "dtype": tuple(DTYPE_BYTES)}
_SHOWN = {"pipe": "pp", "data": "dp", "fsdp": "fsdp", "expert": "ep", "context": "cp", "tensor": "tp"}
_SHOWN |= {"microbatch": "mb", "virtual": "v"}
SHORT = {short: name for name, short in _SHOWN.items() if name != "fsdp"}
SHORT |= {"vp": "virtual", "z": "zero", "sp": "sequence"}
"""The short names of settings, which tables print and people type."""
_OLD = {"zero-bubble": "zb-h1"}
# What DeepSpeed's and FSDP's users write for state and weights in the host's memory.
_OFFLOAD_WORDS = dict.fromkeys(
    ("all", "cpu", "optimizer+parameters", "parameters+optimizer", "param", "params", "zero-infinity"), "parameters"
) | {"optim": "optimizer", "disk": "nvme"}
_WORDS = {word: name for name in ("remat", "schedule", "context_by", "optimizer", "dtype") for word in _CHOICES[name]}
_WORDS |= dict.fromkeys(_OLD, "schedule")
_WORDS["none"] = "remat"  # as tables print it; they leave out that nothing is offloaded
_DEGREES = ", ".join(f"{_SHOWN[axis]} ({axis})" if _SHOWN[axis] != axis else axis for axis in AXES)
_PLAN_WORDS = PlanWords(
    examples=Plan().all_settings | {name: choices[0] for name, choices in _CHOICES.items()},
    short=SHORT,
    degrees=[*SHORT, *AXES],
    alone=_WORDS,
    usage=(
        f"A plan has degrees, written tp4 or tensor=4 ({_DEGREES}), microbatches (mb2), stages of a rank (v2), ZeRO "
        f"(z1) and words: recompute ({', '.join(REMAT)}), schedule ({', '.join(SCHEDULES)}), an optimizer, a dtype."
    ),
)


def read_field(name: str, value: Any) -> Any:
    """The value of one setting of a plan, checked."""
    kinds = {field.name: field.type for field in fields(Plan)}
    if name not in kinds:
        raise unknown("part of a plan called", name, [*kinds, *SHORT])
    text = _OLD.get(str(value).strip(), str(value).strip())
    if name == "offload":
        text = _OFFLOAD_WORDS.get(text, text)
    if name == "remat" and ("+" in text or text in MODULES):
        return read_modules(text)
    if BY_LAYERS.get(without_layers(text)) == name:
        if not re.fullmatch(r"[a-z]+:[1-9]\d{0,3}", text):
            raise InputError(f"In a plan {name} is {shorten(text)}; write a number of layers of at least 1: block:5.")
        return text
    if name in _CHOICES:
        if text in _CHOICES[name]:
            return text
        further = [word for word, setting in BY_LAYERS.items() if setting == name]
        if name == "remat":
            raise unknown("remat policy", text, [*POLICIES, *MODULES, *further])
        raise unknown(name, text, [*_CHOICES[name], *further])
    if name == "layout":
        if text not in ("even", "ends") and not re.fullmatch(r"\d{1,4}(-\d{1,4})*", text):
            raise InputError(
                f"In a plan layout is {shorten(value)}; write even, ends, or layers by stage such as 7-8-8-7."
            )
        return text
    if name in ("sequence", "etp"):
        return _truth(name, value)
    if not re.fullmatch(r"\d{1,7}", text) or (int(text) < 1 and name != "zero"):
        raise InputError(f"In a plan {name} is {shorten(value)}; write a whole number of at least 1.")
    if name == "zero" and int(text) > 3:
        raise InputError(f"In a plan zero is {text}; ZeRO has the stages 0, 1, 2 and 3.")
    return int(text)


def _truth(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false", "1", "0"):
        raise InputError(f"In a plan {name} is {shorten(value)}; write true or false.")
    return text in ("true", "1")


def read_setting(part: str, whole: str) -> tuple[str, str]:
    """The name and the value of one setting as people write it: `tensor=4`, `tp=4`, `tp4`, `block`, `ring`.

    >>> read_setting("tp8", "tp8 pp4"), read_setting("ring=true", ""), read_setting("1f1b", "")
    (('tensor', '8'), ('context_by', 'ring'), ('schedule', '1f1b'))
    """
    name, equals, value = (token.strip() for token in part.partition("="))
    if not equals:  # a value that names its setting, or letters and a number
        number = re.fullmatch(r"([a-z]+)(\d+)", name)
        if name in _WORDS:
            return _WORDS[name], name
        if is_modules(name):
            return "remat", name
        if setting := BY_LAYERS.get(without_layers(name)):
            return setting, name
        if number and (number[1] in SHORT or number[1] in AXES):
            return SHORT.get(number[1], number[1]), number[2]
        raise unknown_setting(part, whole, _PLAN_WORDS)
    if name == "ring":
        return "context_by", "ring" if _truth(name, value) else "gather"
    return SHORT.get(name, name), value


def settings_of(text: str) -> list[str]:
    """The settings of a plan's text, with commas or spaces between them and around the equals signs.

    >>> settings_of("tp = 8, pp=4 block")
    ['tp=8', 'pp=4', 'block']
    """
    return [part for part in re.split(r"[,\s]+", re.sub(r"\s*([=|])\s*", r"\1", text.strip())) if part]


def plan_of_words(text: str) -> Plan:
    """Read `data=2,fsdp=16,tensor=4,…`, or the short form that tables print.

    >>> print(plan_of_words("fsdp2 tp8 pp4 v2 z1 interleaved block"))
    fsdp=2,tensor=8,pipe=4,virtual=2,remat=block,zero=1,schedule=interleaved
    """
    plan = Plan()
    named: set[str] = set()
    for part in settings_of(text):
        name, value = read_setting(part, text)
        if name in named:
            raise InputError(f"In the plan {shorten(text)} {name} is given twice.")
        named.add(name)
        plan = replace(plan, **{name: read_field(name, value)})
    if plan.virtual > 1 and "schedule" not in named:  # several chunks per rank are interleaved
        return replace(plan, schedule="interleaved")
    return plan


def settings_in_words(text: str) -> frozenset[str]:
    """The names of the settings that a plan's text contains.

    >>> sorted(settings_in_words("tp8 pp4 block"))
    ['pipe', 'remat', 'tensor']
    """
    return frozenset(read_setting(part, text)[0] for part in settings_of(text))


def short_plan(plan: Plan) -> str:
    """A plan in one short line, as tables print it and `parse_plan` reads it; defaults are left out.

    >>> short_plan(plan_of_words("fsdp=16,tensor=8,pipe=4,virtual=2,zero=1,remat=block"))
    'pp4 fsdp16 tp8 v2 z1 block'
    """
    default = Plan()
    parts: list[str] = []
    for name, short in _SHOWN.items():
        if plan[name] > 1 or (name == "fsdp" and plan.whole_replicas):
            parts.append(f"{short}{plan[name]}")
    parts += [f"z{plan.zero}", plan.remat]
    if plan.pipe > 1 and not (plan.schedule == "interleaved" and plan.virtual > 1):  # which v2 says already
        parts.append(plan.schedule)
    if plan.context > 1 and plan.context_by != "gather":
        parts.append(plan.context_by)
    parts += [plan[name] for name in ("dtype", "optimizer") if plan[name] != default[name]]
    for name in ("layout", "etp", "offload", "sequence"):
        if plan[name] != default[name]:
            parts.append(f"{name}={_written(plan[name])}")
    return " ".join(parts)
