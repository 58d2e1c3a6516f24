"""The sizes of a model, read off the shapes of its matmuls, and the preset that has them.

A matmul of the forward pass multiplies tokens with a weight. The number of tokens is in all of them and never summed
over; the width of the model is in all of them too. What is left is each weight's own: the width of the MLP, of all
heads together, of the vocabulary. Repetitions say how many layers there are. Sizes are those on one device: tensor
parallelism divides some of them, and where a preset fits after multiplying by a degree, that degree is told.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from dragonscale.evidence.profiles.hlo_roles import HloReader
from dragonscale.evidence.profiles.recording import OpText, Recording
from dragonscale.evidence.profiles.roles import OpRole
from dragonscale.evidence.profiles.work_by_shapes import attention_dims, matmul_dims

_FORWARD = ("forward", "prefill", "decode", "")
_MOST_EXPERTS = 1024
_NO_SHAPES = "The profile has no shapes of matmuls with a known place, so the model's sizes cannot be told."
_EITHER = "Every matmul has the same two sizes, so the model's width and the width of its MLP cannot be told apart."
_DEGREES = (1, 2, 4, 8, 16, 32, 64)
_FIELDS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
}
"""Sizes by the names that configs have for them."""


class InferredSizes(msgspec.Struct, frozen=True):
    """Sizes by name (`d_model`, `d_ff`, `heads`, `kv_heads`, `head_dim`, `layers`, `vocab`, `experts`, `tokens`), as
    one device holds them; the preset that has them, by how much tensor parallelism divides it; and in sentences what
    could not be told."""

    sizes: dict[str, float] = {}
    model: str = ""
    tensor: int = 1
    unknown: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The preset in a sentence; empty where none fits."""
        shared = f", {self.tensor} ways tensor parallel" if self.tensor > 1 else ""
        return f"These are the sizes of {self.model}{shared}." if self.model else ""


class WeightMatmul(msgspec.Struct, frozen=True):
    """A matmul with its place in the model: [m, k] · [k, n], `batch` times side by side; `times` it ran in the
    recording."""

    section: str
    what: str
    batch: int
    m: int
    n: int
    k: int
    times: float


def infer_sizes(recording: Recording, roles: list[OpRole], times: np.ndarray | None = None) -> InferredSizes:
    """What the shapes say; where there are none, that they are missing. `times` is how often each op ran, where no
    events say it."""
    reader = HloReader(recording)
    if times is None:
        times = np.bincount(recording.events.op[_first_device(recording)], minlength=len(roles))
    rows: list[WeightMatmul] = []
    heads: list[tuple[int, ...]] = []
    layers = 0.0
    for op, role, ran in zip(recording.ops, roles, times, strict=True):
        if not ran or role.phase not in _FORWARD:
            continue
        if role.kind in ("matmul", "grouped matmul"):
            rows += [WeightMatmul(role.section, role.what, *found, float(ran)) for found in _matmuls(op, reader)]
        elif role.kind == "attention" and role.flops != 0.0 and not _is_matmul(op, reader):
            layers += float(ran)
            dims = attention_dims(op, reader.operands(op))
            heads += [dims[:5]] if dims else []
    return sizes_of(rows, heads, layers)


def _first_device(recording: Recording) -> np.ndarray:
    """The events of ops on the first device that has any."""
    for device in range(len(recording.devices)):
        which = recording.on("ops", device)
        if which.any():
            return which
    return recording.on("ops")


def _is_matmul(op: OpText, reader: HloReader) -> bool:
    """Whether an op of attention is one matmul of several: they do not tell how often attention ran."""
    work = None if op.shapes else reader.work(op)
    return matmul_dims(op) is not None if op.shapes else work is not None and work.kind == "matmul"


def _matmuls(op: OpText, reader: HloReader) -> list[tuple[int, int, int, int]]:
    if op.shapes:
        found = matmul_dims(op)
        return [found] if found else []
    work = reader.work(op)
    return [(each.batch, each.m, each.n, each.k) for each in work.matmuls] if work else []


def sizes_of(rows: list[WeightMatmul], heads: list[tuple[int, ...]], attentions: float) -> InferredSizes:
    """Sizes from matmuls (those of one device's forward pass), dims of attention's operands and how often attention
    ran."""
    rows = [_whole(row) for row in rows]
    plain = [row for row in rows if row.batch == 1 and row.section in ("attention", "mlp", "head")]
    if not plain:
        return InferredSizes(unknown=(_NO_SHAPES,))
    tokens = _commonest({row.m, row.n} for row in plain if row.section != "head") or plain[0].m
    width = _width(plain, tokens)
    if not width:
        return InferredSizes({"tokens": tokens}, unknown=(_EITHER,))
    found: dict[str, float] = {"d_model": width, "tokens": tokens}
    experts = [row for row in rows if row.section == "experts"]
    found |= _mlp([row for row in plain if row.section == "mlp"], width, tokens) or _experts(experts, width)
    found |= _attention([row for row in plain if row.section == "attention"], heads, width, tokens)
    vocab = [size for row in plain if row.section == "head" for size in _others(row, tokens) if size != width]
    if vocab:
        found["vocab"] = max(vocab)
    steps = min((row.times for row in plain if row.section == "head"), default=0.0)
    layers = attentions or sum(row.times for row in plain if row.what == "Wo")
    if steps and layers and layers % steps == 0:
        found["layers"] = layers / steps
    model, tensor = match_preset(found)
    return InferredSizes(found, model, tensor, tuple(_missing(found)))


def _whole(row: WeightMatmul) -> WeightMatmul:
    """A compiler may cut what a matmul sums over into pieces side by side; attention's scores are side by side by
    themselves."""
    scores = row.section == "attention" and row.what not in ("QKV", "Wo")
    return row if scores else msgspec.structs.replace(row, batch=1, k=row.k * row.batch)


def _commonest(sets: Iterable[set[int]]) -> int:
    """The size that is in most of these sets; of several the largest."""
    votes = Counter(size for one in sets for size in one)
    return max(votes, key=lambda size: (votes[size], size)) if votes else 0


def _width(rows: list[WeightMatmul], tokens: int) -> int:
    """The model's width, which is in every weight; 0 where two sizes are, as in a model of MLPs whose matmuls have no
    names."""
    votes = Counter(size for row in rows for size in set(_others(row, tokens)))
    most = [size for size, count in votes.items() if count == max(votes.values())]
    named = [row.k for row in rows if row.what == "up"]
    named += [_others(row, tokens)[1] for row in rows if row.what == "down"]
    if len(most) > 1 and named:
        most = [size for size in most if size in named] or most
    return most[0] if len(most) == 1 else 0


def _others(row: WeightMatmul, tokens: int) -> tuple[int, int]:
    """The two sizes of the weight: what is summed, and what comes out beside the tokens (a head may
    see fewer tokens)."""
    out = row.n if row.m == tokens else row.m if row.n == tokens else max(row.m, row.n)
    return row.k, out


def _mlp(rows: list[WeightMatmul], width: int, tokens: int) -> dict[str, float]:
    """The width of the MLP: what its last matmul sums over. The first may be two, joined."""
    down = [row.k for row in rows if _others(row, tokens)[1] == width and row.k != width]
    up = [_others(row, tokens)[1] for row in rows if row.k == width]
    if not down and not up:
        return {}
    return {"d_ff": Counter(down).most_common(1)[0][0] if down else min(up)}


def _experts(rows: list[WeightMatmul], width: int) -> dict[str, float]:
    """How many experts there are (the router's result), and the width of one: their weights may stand side by side in
    what is summed."""
    routers = [min(row.m, row.n) for row in rows if row.k == width and min(row.m, row.n) <= _MOST_EXPERTS]
    if not routers:
        return {}
    experts = min(routers)
    inner = [min(row.m, row.n) for row in rows if row.k in (width, experts * width) and min(row.m, row.n) > experts]
    found: dict[str, float] = {"experts": experts}
    return found | ({"d_ff": Counter(inner).most_common(1)[0][0]} if inner else {})


def _attention(rows: list[WeightMatmul], heads: list[tuple[int, ...]], width: int, tokens: int) -> dict[str, float]:
    """Heads from attention's operands [batch, heads, kv heads, tokens, size of a head]; without them, their widths
    together."""
    if heads:
        _, several, shared, length, size = Counter(heads).most_common(1)[0][0]
        return {"heads": several, "kv_heads": shared, "head_dim": size, "seq": length}
    summed = [row.k for row in rows if _others(row, tokens)[1] == width]
    if not summed:
        return {}
    together = max(summed, key=summed.count)
    found: dict[str, float] = {"q_dim": together}
    outputs = sorted({_others(row, tokens)[1] for row in rows if row.k == width})
    if outputs and outputs[-1] > together:
        found["kv_dim"] = (outputs[-1] - together) / 2
    elif len(outputs) > 1:
        found["kv_dim"] = outputs[0]
    return found


def _missing(found: dict[str, float]) -> list[str]:
    words = {
        "d_ff": "the width of the MLP",
        "vocab": "the vocabulary (no matmul of the head was found)",
        "layers": "the number of layers",
        "heads": "the heads (attention's operands are not recorded)",
    }
    missing = [text for name, text in words.items() if name not in found]
    return [f"Shapes do not say {', '.join(missing)}."] if missing else []


def match_preset(found: dict[str, float]) -> tuple[str, int]:
    """The preset that agrees with most sizes, and the degree of tensor parallelism that divides them; nothing where too
    few agree.

    >>> match_preset({"d_model": 4096, "d_ff": 3584, "vocab": 32064, "layers": 32, "heads": 8})
    ('llama3-8b', 4)
    """
    from dragonscale.models.catalogue import model_names, preset

    best, most = ("", 1), 2
    for name in model_names():
        fields = preset(name)
        for degree in _DEGREES:
            agree = _agreement(found, fields, degree)
            if agree > most:
                best, most = (name, degree), agree
    return best


def _agreement(found: dict[str, float], fields: "dict[str, object]", degree: int) -> int:
    """How many sizes a preset shares; none where the width or the MLP's differ."""

    def field(*names: str) -> float:
        return next((float(value) for name in names if isinstance(value := fields.get(name), int | float)), 0.0)

    width = field("hidden_size", "n_embd", "d_model")
    inner = field("intermediate_size", "moe_intermediate_size", "ffn_dim")
    if width != found.get("d_model") or inner != found.get("d_ff", 0) * degree:
        return 0
    vocab, ours = field("vocab_size"), found.get("vocab", 0) * degree
    if ours and vocab and not vocab <= ours <= 1.02 * vocab + 256:  # rows are padded
        return 0
    pairs = [(field(*_FIELDS[name]), found.get(name, 0) * (degree if "heads" in name else 1)) for name in _FIELDS]
    if any(theirs and size and theirs != size for theirs, size in pairs):
        return 0
    return 2 + bool(ours) + sum(bool(size) and size == theirs for theirs, size in pairs)
