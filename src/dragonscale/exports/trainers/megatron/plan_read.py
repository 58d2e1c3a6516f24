"""Arguments of Megatron-LM as a plan: what is written, read back, for commands that people wrote too.

A number that Megatron-LM would refuse (0 ranks, layers that do not divide over the stages) is refused here as well: a
plan of it would have lost ranks or layers.
"""

import re
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.flags import ReadFlags
from dragonscale.exports.imported import run_tokens
from dragonscale.exports.terms import load_terms
from dragonscale.exports.values import whole
from dragonscale.models.recompute_modules import MODULES, read_modules
from dragonscale.training.plan import Plan
from dragonscale.training.plan_file import TrainingFile
from dragonscale.training.stages import chunk_sizes

TERMS = load_terms("megatron")

_HEAVY: dict[str, tuple[str, tuple[str, ...]]] = TERMS.tables["heavy"]
_ZERO: dict[str, int] = TERMS.tables["zero"]


def is_harmless(name: str) -> bool:
    """Whether an option changes nothing of a plan beyond what was read of it."""
    return name.removeprefix("--").removeprefix("no-").startswith(TERMS.lists["harmless"])


def number(read: ReadFlags, name: str, default: int = 1, least: int = 1) -> int:
    """A flag's number."""
    value = read.take(name)
    return default if value is None else whole(value, name, least)


def plan_read(read: ReadFlags, chips: int, layers: int, experts: bool) -> tuple[Plan, int, list[str]]:
    """The plan that flags say on so many chips, the batch, and how it was read."""
    axes = ("tensor-model", "pipeline-model", "context")
    tensor, pipe, context = (number(read, f"--{axis}-parallel-size") for axis in axes)
    ranks = tensor * pipe * context
    if chips % ranks:
        raise InputError(f"{chips} chips do not divide by tensor={tensor} x pipe={pipe} x context={context} = {ranks}.")
    replicas, notes = chips // ranks, list[str]()
    zero = _zero(read)
    split = _split(read, replicas, (tensor if experts else 1), context, zero, notes)
    microbatch = number(read, "--micro-batch-size")
    batch = number(read, "--global-batch-size", microbatch * replicas)
    if batch % (microbatch * replicas):
        raise TERMS.wrong("batch_multiple", batch=batch, microbatch=microbatch, replicas=replicas)
    virtual, layout = _pipeline(read, pipe, layers, notes)
    plan = Plan(
        **split,
        tensor=tensor,
        context=context,
        pipe=pipe,
        microbatch=microbatch,
        virtual=virtual,
        remat=_remat(read, notes),
        zero=zero,
        dtype=_dtype(read),
        schedule="interleaved" if virtual > 1 else "1f1b",
        sequence=_sequence(read, tensor),
        context_by=_context_by(read, context, notes),
        layout=layout,
        optimizer=_optimizer(read),
        offload=_offload(read),
    )
    return plan, batch, notes


def _sequence(read: ReadFlags, tensor: int) -> bool:
    return bool(read.take("--sequence-parallel", False)) or tensor == 1


def _zero(read: ReadFlags) -> int:
    strategy = str(read.take("--data-parallel-sharding-strategy", "optim_grads_params"))
    distributed = bool(read.take("--use-distributed-optimizer", False))
    if read.take("--use-megatron-fsdp") or read.take("--use-custom-fsdp"):
        if strategy not in _ZERO:
            raise TERMS.wrong("sharding_strategy", word=shorten(strategy), words=", ".join(list(_ZERO)[::2]))
        return _ZERO[strategy]
    if read.take("--use-torch-fsdp2"):
        return 2 if read.take("--torch-fsdp2-no-reshard-after-forward") else 3
    return 1 if distributed or read.values.get("--optimizer") == "dist_muon" else 0


def _split(read: ReadFlags, replicas: int, tensor: int, context: int, zero: int, notes: list[str]) -> dict[str, Any]:
    """Data-parallel ranks as the plan's axes: replicas, shards, and those that hold different experts."""
    ep, etp = number(read, "--expert-model-parallel-size"), number(read, "--expert-tensor-parallel-size", tensor)
    sliced = etp > 1
    ways, fold = (ep, "tensor") if sliced or ep % tensor else (ep // tensor, "tensor")
    if not sliced and tensor > 1 and ep % tensor:
        notes.append(f"EP {ep} is no multiple of tensor={tensor}: it is read as experts sliced over tensor.")
        sliced = True
    if etp not in (1, tensor):
        notes.append(f"Experts are sliced over {etp} of tensor={tensor} ranks: it is read as all of them.")
    if context > 1 and ways > 1 and ways % context == 0 and replicas % (ways // context) == 0:
        ways, fold = ways // context, "context"
    if replicas % ways:
        raise TERMS.wrong("experts_on_ranks", ep=ep, replicas=replicas, tensor=tensor)
    data, rest = number(read, "--num-distributed-optimizer-instances"), replicas // ways
    if rest % data:
        raise InputError(f"--num-distributed-optimizer-instances {data} does not divide {rest} data-parallel ranks.")
    if not zero:
        data = rest
    etp_on = sliced and ep * etp > 1 and tensor > 1
    return {"data": data, "fsdp": rest // data, "expert": ways, "etp": etp_on, "fold": fold}


def _pipeline(read: ReadFlags, pipe: int, layers: int, notes: list[str]) -> tuple[int, str]:
    """Chunks of a rank, and how layers are dealt to them."""
    each = number(read, "--num-layers-per-virtual-pipeline-stage", 0)
    virtual = number(read, "--num-virtual-stages-per-pipeline-rank")
    first, last = (number(read, f"--decoder-{end}-pipeline-num-layers", 0, least=0) for end in ("first", "last"))
    counted = (read.take(f"--account-for-{end}-in-pipeline-split", False) for end in ("embedding", "loss"))
    embedding, loss = map(bool, counted)
    text = str(read.take("--pipeline-model-parallel-layout", "") or "")
    if pipe == 1:
        return 1, "even"
    if text:
        sizes = layout_sizes(text)
        if len(sizes) % pipe or sum(sizes) != layers:
            raise TERMS.wrong("layout_layers", layers=layers, pipe=pipe, dealt=sum(sizes), stages=len(sizes))
        return len(sizes) // pipe, _named(sizes, layers)
    if first or last:
        if each or embedding or loss:
            raise TERMS.wrong("first_and_last")
        return virtual, _named(_uneven(layers, pipe, virtual, first, last), layers)
    slots = layers + embedding + loss
    if each:
        virtual = max(slots // (pipe * each), 1)
    share, rest = divmod(slots, pipe * virtual)
    if rest or (each and share != each):
        counted = f"{layers} layers" + (f" and {embedding + loss} more for the ends" if embedding or loss else "")
        chunks = f" x {virtual} chunks" if virtual > 1 else ""
        told = f"{counted} do not divide over {pipe} pipeline stages{chunks}, as Megatron-LM needs"
        if each or embedding or loss:
            raise InputError(f"{told}.")
        # recipes of Megatron-Bridge set the layout by a function of their own
        notes.append(f"{told} where no layout is said: the first stages are given the layers that are left over.")
    if embedding == loss:
        return virtual, "ends" if embedding else "even"
    sizes = [share] * (pipe * virtual)
    sizes[0 if embedding else -1] -= 1
    return virtual, _named(sizes, layers)


def _uneven(layers: int, pipe: int, virtual: int, first: int, last: int) -> list[int]:
    """Layers of every chunk where the first or the last stage has its own number: the stages between them share what is
    left, and a stage deals its layers evenly to its chunks.

    >>> _uneven(32, 4, 1, 5, 0), _uneven(32, 4, 2, 6, 6)
    ([5, 9, 9, 9], [3, 5, 5, 3, 3, 5, 5, 3])
    """
    middle, left = pipe - bool(first) - bool(last), layers - first - last
    share = left // middle if middle else 0
    ranks = [*([first] if first else []), *[share] * middle, *([last] if last else [])]
    if left < 0 or sum(ranks) != layers or any(size % virtual for size in ranks):
        said = " and ".join(f"{size} in the {name} stage" for size, name in ((first, "first"), (last, "last")) if size)
        over = f"{middle} other stages" + (f" of {virtual} chunks" if virtual > 1 else "")
        raise TERMS.wrong("uneven", layers=layers, said=said, left=left, over=over)
    return [size // virtual for _ in range(virtual) for size in ranks]


def layout_sizes(text: str) -> list[int]:
    """Layers of every stage of a layout.

    >>> layout_sizes("Ettt|(tt|)*3,t|L")
    [3, 2, 2, 2, 1, 0]
    """
    plain = text.replace(",", "").replace(" ", "")
    for repeated in (r"\(([^)]+)\)\*(\d{1,4})", r"(.)\*(\d{1,4})"):
        plain = re.sub(repeated, lambda match: match[1] * int(match[2]), plain)
    if not re.fullmatch(r"[EtmL|]+", plain):
        raise InputError(f"--pipeline-model-parallel-layout is {shorten(text)}; it is written with E, t, m, L and |.")
    return [stage.count("t") for stage in plain.split("|")]


def _named(sizes: list[int], layers: int) -> str:
    for layout in ("even", "ends"):
        if sizes == chunk_sizes(layers, len(sizes), layout):
            return layout
    return "-".join(map(str, sizes))


def _remat(read: ReadFlags, notes: list[str]) -> str:
    kind, method = read.take("--recompute-granularity"), read.take("--recompute-method")
    layers, modules = number(read, "--recompute-num-layers"), read.take("--recompute-modules")
    if read.take("--recompute-activations"):
        kind = "selective"
    if read.take("--moe-layer-recompute"):
        kind, modules = "selective", [*(modules or ["core_attn"]), "moe"]
    if kind == "full":
        if method == "block":
            notes.append(f"{layers} layers of each stage are recomputed; it is read as all of them (remat=block).")
        elif layers > 1:
            notes.append(f"Inputs are kept of every {layers} layers; it is read as of every layer (remat=block).")
        return "block"
    if kind != "selective":
        return "none"
    named = [str(one) for one in modules or ["core_attn"]]
    known = [one for one in named if one in MODULES]
    if strange := [one for one in named if one not in MODULES]:
        notes.append(f"Recomputed modules that the planner has no word for: {', '.join(strange)}.")
    return read_modules("+".join(known)) if known else "none"


def _dtype(read: ReadFlags) -> str:
    plain = "bf16" if read.values.get("--bf16") else "fp16" if read.values.get("--fp16") else "fp32"
    if read.values.get("--fp4-format"):
        return "nvfp4"
    if not read.values.get("--fp8-format"):
        return plain
    return "mxfp8" if read.values.get("--fp8-recipe") == "mxfp8" else "fp8"


def _context_by(read: ReadFlags, context: int, notes: list[str]) -> str:
    words = read.take("--cp-comm-type") or ["p2p"]
    kinds = {word: name for name, word in TERMS.tables["context_by"].items()}
    first = str(words[0] if isinstance(words, list) else words)
    if context == 1:
        return "gather"
    if first == "a2a+p2p":
        notes.append("--cp-comm-type a2a+p2p (heads inside, a ring outside) is read as ring attention.")
        return "ring"
    if first not in kinds:
        raise InputError(f"--cp-comm-type is {shorten(first)}; it is one of {', '.join(kinds)}, a2a+p2p.")
    return kinds[first]


def _optimizer(read: ReadFlags) -> str:
    name = str(read.take("--optimizer", "adam"))
    if name in ("dist_muon", "adaptive_muon"):
        name = "muon"
    if name not in ("adam", "sgd", "muon"):
        raise InputError(f"--optimizer is {shorten(name)}; of Megatron-LM's, adam, sgd and muon are planned.")
    narrow = {str(read.values.get(f"--exp-avg{end}-dtype", "fp32")) for end in ("", "-sq")}
    return "adam-bf16" if name == "adam" and narrow <= {"bf16", "fp16"} else name


def _offload(read: ReadFlags) -> str:
    return "optimizer" if read.take("--optimizer-cpu-offload") else "none"


def heavy(read: ReadFlags) -> list[str]:
    """Options that would change time or memory and that a plan has no word for, each with what is judged; they count as
    read."""
    found: list[str] = []
    for name, (judged, plain) in _HEAVY.items():
        value = read.take(name)
        if value not in (None, False) and str(value) not in plain:
            found.append(f"{name} ({judged})")
    return found


def stack_read(read: ReadFlags) -> str:
    """The stack whose switches the flags are: how tokens go to experts, and in what gradients are summed."""
    said = read.values
    dispatcher, hidden = said.get("--moe-token-dispatcher-type"), bool(said.get("--overlap-moe-expert-parallel-comm"))
    if dispatcher == "alltoall":
        return "megatron-alltoall-overlap" if hidden else "megatron-alltoall"
    if hidden:
        return "megatron-overlap"
    narrow = said.get("--grad-reduce-in-bf16") or said.get("--main-grads-dtype") == "bf16" or not said.get("--bf16")
    return "megatron-core" if narrow else "megatron-fp32"


def said_tokens(read: ReadFlags, batch: int, seq: int, file: TrainingFile, stand_in: int = 0) -> str:
    """The tokens of the run that flags say; empty where they say none, those of the header, or the `stand_in` steps of
    an export that knows none."""
    steps, samples = (number(read, f"--train-{unit}", 0, least=0) for unit in ("iters", "samples"))
    steps = steps or samples // batch
    if not steps or (steps == stand_in and not file.tokens):
        return ""
    return run_tokens(file.tokens, steps, batch * seq)
