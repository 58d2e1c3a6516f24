"""Commands and scripts that start Megatron-LM's `pretrain_gpt.py`, read as plans.

The sizes of the model and the plan come from the arguments; the chips are the user's word, the header's, or the
processes that the launcher starts. Recipes of Megatron-Bridge come here too, once their fields are flags. A number that
Megatron-LM would refuse (0 ranks, layers that do not divide over the stages) is refused here as well: a plan of it
would have lost ranks or layers.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError, shorten
from dragonscale.exports.imported import Given, Imported, Source, layout_named, left_over, slice_counted, training_file
from dragonscale.exports.keys import ReadFlags, load_keys, read_flags
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.megatron.model import SCRIPT, model_read
from dragonscale.models import load_model
from dragonscale.models.recompute_modules import MODULES, read_modules
from dragonscale.training.plan.plan import Plan

TERMS = load_terms("megatron")

_HEAVY: dict[str, tuple[str, tuple[str, ...]]] = TERMS.tables["heavy"]
_ZERO: dict[str, int] = TERMS.tables["zero"]


def plan_read(read: ReadFlags, chips: int, layers: int, experts: bool) -> tuple[Plan, int, list[str]]:
    """The plan that flags say on so many chips, the batch, and how it was read."""
    axes = ("tensor-model", "pipeline-model", "context")
    tensor, pipe, context = (read.whole(f"--{axis}-parallel-size") for axis in axes)
    ranks = tensor * pipe * context
    if chips % ranks:
        raise InputError(f"{chips} chips do not divide by tensor={tensor} x pipe={pipe} x context={context} = {ranks}.")
    replicas, notes = chips // ranks, list[str]()
    zero = _zero(read)
    split = _split(read, replicas, (tensor if experts else 1), context, zero, notes)
    microbatch = read.whole("--micro-batch-size")
    batch = read.whole("--global-batch-size", microbatch * replicas)
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
        remat=_remat(read, notes, -(-layers // (pipe * virtual))),
        zero=zero,
        dtype=TERMS.choice("dtype", read.values),
        schedule="interleaved" if virtual > 1 else "1f1b",
        sequence=bool(read.take("--sequence-parallel")) or tensor == 1,
        context_by=_context_by(read, context, notes),
        layout=layout,
        optimizer=_optimizer(read),
        offload=_offload(read, notes),
    )
    return plan, batch, notes


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
    ep, etp = read.whole("--expert-model-parallel-size"), read.whole("--expert-tensor-parallel-size", tensor)
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
    data, rest = read.whole("--num-distributed-optimizer-instances"), replicas // ways
    if rest % data:
        raise InputError(f"--num-distributed-optimizer-instances {data} does not divide {rest} data-parallel ranks.")
    if not zero:
        data = rest
    etp_on = sliced and ep * etp > 1 and tensor > 1
    return {"data": data, "fsdp": rest // data, "expert": ways, "etp": etp_on, "fold": fold}


def _pipeline(read: ReadFlags, pipe: int, layers: int, notes: list[str]) -> tuple[int, str]:
    """Chunks of a rank, and how layers are dealt to them."""
    each = read.whole("--num-layers-per-virtual-pipeline-stage", 0)
    virtual = read.whole("--num-virtual-stages-per-pipeline-rank")
    first, last = (read.whole(f"--decoder-{end}-pipeline-num-layers", 0, least=0) for end in ("first", "last"))
    counted = (read.take(f"--account-for-{end}-in-pipeline-split", False) for end in ("embedding", "loss"))
    embedding, loss = map(bool, counted)
    text = str(read.take("--pipeline-model-parallel-layout", "") or "")
    if pipe == 1:
        return 1, "even"
    if text:
        sizes = layout_sizes(text)
        if len(sizes) % pipe or sum(sizes) != layers:
            raise TERMS.wrong("layout_layers", layers=layers, pipe=pipe, dealt=sum(sizes), stages=len(sizes))
        return len(sizes) // pipe, layout_named(sizes, layers)
    if first or last:
        if each or embedding or loss:
            raise TERMS.wrong("first_and_last")
        return virtual, layout_named(_uneven(layers, pipe, virtual, first, last), layers)
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
    return virtual, layout_named(sizes, layers)


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


def _offload(read: ReadFlags, notes: list[str]) -> str:
    optimizer, layers = read.take("--optimizer-cpu-offload"), read.whole("--cpu-offloading-num-layers", 0, 0)
    if optimizer and layers:
        notes.append(f"Activations of {layers} layers are offloaded, too; they are counted on the chip.")
    return "optimizer" if optimizer else f"activations:{layers}" if layers else "none"


def _remat(read: ReadFlags, notes: list[str], chunk: int) -> str:
    """What is recomputed; `chunk` are the layers of one."""
    kind, method = read.take("--recompute-granularity"), read.take("--recompute-method")
    layers, modules = read.whole("--recompute-num-layers"), read.take("--recompute-modules")
    if read.take("--recompute-activations"):
        kind = "selective"
    if read.take("--moe-layer-recompute"):
        kind, modules = "selective", [*(modules or ["core_attn"]), "moe"]
    if kind == "full":
        if method == "block" and layers < chunk:
            return f"block:{layers}"
        if method != "block" and layers > 1:
            notes.append(f"Inputs are kept of every {layers} layers; it is read as of every layer (remat=block).")
        return "block"
    if kind != "selective":
        return "none"
    named = [str(one) for one in modules or ["core_attn"]]
    known = [one for one in named if one in MODULES]
    if strange := [one for one in named if one not in MODULES]:
        notes.append(f"Recomputed modules that the planner has no word for: {', '.join(strange)}.")
    return read_modules("+".join(known)) if known else "none"


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


def heavy(read: ReadFlags) -> list[str]:
    """Options that would change time or memory and that a plan has no word for, each with what is judged; they count as
    read."""
    found: list[str] = []
    for name, (judged, plain) in _HEAVY.items():
        value = read.take(name)
        if value not in (None, False) and str(value) not in plain:
            found.append(f"{name} ({judged})")
    return found


def recognises(source: Source) -> bool:
    return source.command(SCRIPT) is not None


def read(source: Source, given: Given) -> Imported:
    """The plan of a command or a script that starts `pretrain_gpt.py`."""
    command, table = source.command(SCRIPT), load_keys("megatron")
    assert command is not None
    at = next(place for place, word in enumerate(command.words) if word.rsplit("/", 1)[-1] == SCRIPT)
    # scripts keep a flag and its value in one word of an array, which an unquoted `${ARGS[@]}` takes apart
    words = [piece for word in command.words[at + 1 :] for piece in (word.split() if word.startswith("--") else [word])]
    read = read_flags(table, renamed(words))
    return read_run(source, given, read, command.processes, "megatron", table.version)


def renamed(words: Sequence[str]) -> list[str]:
    """Words by the names of today: Megatron-LM's until 2022, and Megatron-DeepSpeed's, which still has them.

    >>> renamed(["--checkpoint-num-layers=2", "--zero-stage", "1", "--bf16"])
    ['--recompute-num-layers', '2', '--use-distributed-optimizer', '--bf16']
    """
    former, found, at = TERMS.tables["former"], list[str](), 0
    while at < len(words):
        name, equals, inline = words[at].partition("=")
        value = [inline] if equals else words[at + 1 : at + 2]
        if (both := " ".join([name, *value])) in former:
            found += former[both].split()
            at += 1 if equals else 2
            continue
        found += [*former[name].split(), *(value if equals else ())] if name in former else [words[at]]
        at += 1
    return found


def read_run(
    source: Source, given: Given, read: ReadFlags, processes: int, target: str, version: str, named: str = ""
) -> Imported:
    """The plan that arguments say, on so many processes; the chips are the user's word, the header's, or those
    processes. `named` is the model that is said by name."""
    piece = slice_counted(source, given, processes)
    if piece is None:
        how = f"--on CHIP (its {processes} processes are counted)" if processes else "--on SLICE"
        raise source.needs("its chips", how)
    other = processes and processes != piece.chips
    told = [f"It starts {processes} processes; it is read for {piece}."] if other else []
    vocabulary = "--vocab-size" not in read.values  # that of a tokenizer
    model = model_read(read, source.kept_word("model"), given.model) or named
    if not (name := given.model or model or source.kept_word("model")):
        raise source.needs("the model's sizes", "--model")
    built = load_model(name)
    if vocabulary and "?" in model and not given.model:
        told.append(TERMS.say("vocabulary", vocab=built.vocab))
    experts = any("e" in section.dims for section in built.program().sections)
    seq = read.whole("--seq-length", read.whole("--encoder-seq-length", 0))
    if not seq:
        raise InputError(f"{source.shown} does not say its --seq-length.")
    stack = TERMS.choice("stack", read.values)
    if target == "megatron-bridge" and stack in ("megatron-lm", "megatron-overlap"):
        stack = target
    plan, batch, notes = plan_read(read, piece.chips, built.n_layers, experts)
    iterations, samples = (read.whole(f"--train-{unit}", 0, least=0) for unit in ("iters", "samples"))
    steps = iterations or samples // batch
    stack = source.kept_word("stack") or stack
    file = training_file(source, given.on(piece), plan, batch, seq, model, stack, steps)
    file = replace(file, numerics=TERMS.choice("numerics", read.values))
    if capacity := read.take("--moe-expert-capacity-factor"):
        file = replace(file, capacity=_capacity(capacity))
    weighty = () if target == "megatron-bridge" else heavy(read)
    plain = {name: name.removeprefix("--").removeprefix("no-") for name in read.values}
    harmless = [name for name, bare in plain.items() if bare.startswith(TERMS.lists["harmless"])]
    ignored, unplanned = left_over(read.values, harmless)
    return Imported(target, version, file, (*told, *notes), ignored, (*weighty, *unplanned), tuple(read.unknown))


def _capacity(value: Any) -> float:
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--moe-expert-capacity-factor is {shorten(value)}; write a number.")
    return max(number, 0.0)
