"""Plans out of torchtitan's words, of both kinds that are published.

Since 0.3 a run is `--module llama3 --config llama3_8b` (or `MODULE=llama3 CONFIG=llama3_8b ./run_train.sh`) with a flag
for each setting that differs; what the config function sets is in the table of keys. Before, it was a TOML file with
the sections `[model]`, `[training]`, `[parallelism]` and so on, given by `--job.config_file` (or `CONFIG_FILE=…`), and
the same flags. Names that changed over the years are read as today's.
"""

from dataclasses import replace

from dragonscale.errors import InputError, unknown
from dragonscale.exports.imported import Given, Imported, needs, run_tokens, slice_counted, training_file
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import model_of_sizes
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.torchtitan import titan_models as titan_models
from dragonscale.exports.trainers.torchtitan.said import TitanSaid, of_command, of_table
from dragonscale.exports.trainers.torchtitan.stages import SCHEDULES, layout_read
from dragonscale.exports.values import whole
from dragonscale.models import load_model
from dragonscale.models.catalogue import is_preset, model_names, preset
from dragonscale.training.plan import Plan
from dragonscale.training.plan_file import TrainingFile

TERMS = load_terms("torchtitan")

HARMLESS = TERMS.lists["harmless_sections"]
_HARMLESS_KEYS = TERMS.lists["harmless_keys"]
_REMAT = TERMS.tables["remat"]


def recognises(source: Source) -> bool:
    """A command that starts torchtitan, or a TOML file of its older releases."""
    if _command(source) is not None:
        return True
    table = source.table or {}
    model = table.get("model")
    return isinstance(model, dict) and "flavor" in model and isinstance(table.get("training"), dict)


def _command(source: Source) -> ShellCommand | None:
    for command in source.commands:
        words = command.words
        if any(word.endswith(("torchtitan.train", "torchtitan/train.py", "run_train.sh")) for word in words):
            return command
        if any(word.startswith(("--job.config_file", "--job.config-file")) for word in words):
            return command
    return None


def read(source: Source, given: Given) -> Imported:
    """The plan of a command or a file."""
    command = _command(source)
    said = of_command(source, command) if command is not None else of_table(source.table or {})
    processes = (command.processes or _count(command.env.get("NGPU", ""))) if command is not None else 0
    file, notes = _file(source, given, said, processes)
    left = [name for name in said.values if name not in said.used]
    ignored = [name for name in left if name.split(".")[0] in HARMLESS or name.startswith(_HARMLESS_KEYS)]
    unplanned, told = [name for name in left if name not in ignored], (*said.notes, *notes)
    version = load_keys("torchtitan").version if not said.old else "0.1 or 0.2"
    return Imported("torchtitan", version, file, told, tuple(ignored), tuple(unplanned), tuple(said.unknown))


def _count(text: str) -> int:
    return whole(text, "NGPU") if text.isdecimal() else 0


def _file(source: Source, given: Given, said: TitanSaid, processes: int) -> tuple[TrainingFile, list[str]]:
    model, layers, experts = _model(source, given, said)
    plan, notes = _plan(source, given, said, processes, layers, experts)
    local, seq = said.take("training.local_batch_size", 8), said.take("training.seq_len", 2048)
    every, once = said.take("training.global_batch_size", -1), local * plan.replicas
    batch = every if every > 0 else once
    if batch % once:
        raise TERMS.wrong("batch_multiple", batch=batch, local=local, plan=plan)
    micro = said.take("parallelism.pipeline_parallel_microbatch_size", 1) if plan.pipe > 1 else local
    if local % micro:
        raise TERMS.wrong("microbatch_multiple", local=local, micro=micro)
    plan = replace(plan, microbatch=micro)
    if plan.pipe > 1 and batch > once:
        notes.append(f"The pipeline is emptied {batch // once} times in a step; the plan fills it once.")
    file = training_file(source, given, plan, batch, seq, model, "torchtitan")
    piece = slice_counted(source, given, plan.chips)
    if piece is not None and piece.chips != plan.chips:
        raise InputError(f"{source.shown} is for {plan.chips} chips, and {piece} has {piece.chips}.")
    file = replace(file, slice=str(piece) if piece is not None else file.slice, stack=_stack(source, said))
    return _with_tokens(file, said), notes


def _with_tokens(file: TrainingFile, said: TitanSaid) -> TrainingFile:
    """The tokens of the run: those of the header where they come to the steps that are said, else the steps' own."""
    steps, step = said.take("training.steps", 0), file.batch * file.seq
    return replace(file, tokens=run_tokens(file.tokens, steps, step))


def _model(source: Source, given: Given, said: TitanSaid) -> tuple[str, int, int]:
    """The model, its layers and its experts; nothing where the config does not say."""
    kept = (given.model or str(source.kept.get("model", ""))).partition("?")[0]
    if said.sizes:
        fields = titan_models.fields_of_sizes(said.module, said.sizes)
        kinds = [fields["model_type"], *(["mistral"] if said.module == "llama3" else [])]
        named = [model_of_sizes({**fields, "model_type": kind}, kept) for kind in kinds]
        best = min(named, key=lambda one: (one.count("=") if "?" in one else 0, one.partition("?")[0] != kept))
        return best, fields["num_hidden_layers"], fields.get("num_experts", 0)
    known = {name.lower(): name for name in titan_models.flavors()}
    flavor = known.get(f"{said.module}/{said.flavor}".lower(), "")
    if flavor:
        sizes = titan_models.flavors()[flavor]
        return _preset(flavor, kept), sizes["num_hidden_layers"], sizes.get("num_experts", 0)
    if not given.model and not kept:
        raise needs(f"a model that is known here ({said.module or '?'} {said.flavor or '?'})", "it by --model", source)
    model = load_model(given.model or kept)
    experts = max((section.dims.get("e", 0) for section in model.program().sections), default=0)
    return given.model or kept, model.n_layers, experts


def _preset(flavor: str, kept: str) -> str:
    """The preset with the sizes of a flavor; the one that the header names, where it has them."""
    names, family = [kept] if is_preset(kept) else [], flavor.partition("/")[0].replace("_", "-")
    for name in [*names, *sorted(model_names(), key=lambda one: (not one.startswith(family), len(one), one))]:
        fields = preset(name)
        if titan_models.flavor_of(fields, float(fields.get("parameters") or 0) or 1.0) == flavor:
            return name
    return kept


def _plan(
    source: Source, given: Given, said: TitanSaid, processes: int, layers: int, experts: int
) -> tuple[Plan, list[str]]:
    degrees = {name: said.take(f"parallelism.{key}", 1) for name, key in _DEGREES.items()}
    shard = said.take("parallelism.data_parallel_shard_degree", -1)
    if shard < 1:
        piece = slice_counted(source, given, processes)
        world = piece.chips if piece is not None else processes
        if not world:
            raise needs("how many chips it is for", "them by --on, such as h100:8", source)
        rest = degrees["data"] * degrees["context"] * degrees["tensor"] * degrees["pipe"]
        if world % rest:
            raise InputError(f"{source.shown} splits {rest} ways beside FSDP, which do not divide {world} chips.")
        shard = world // rest
    plan = Plan(fsdp=shard, **{name: degree for name, degree in degrees.items() if name != "expert"})
    plan, notes = _with_experts(plan, degrees["expert"], experts, said)
    reshard = str(said.take("parallelism.fsdp_reshard_after_forward", "default"))
    plan = replace(plan, zero=2 if reshard == "never" or (reshard == "default" and plan.pipe > 1) else 3)
    schedule, virtual, layout = _pipeline(said, plan.pipe, layers)
    ring = str(said.take("parallelism.context_parallel_rotate_method", "allgather")) == "alltoall"
    mode = str(said.take("activation_checkpoint", "selective"))
    if mode not in _REMAT:
        raise unknown("mode of torchtitan's activation checkpointing called", mode, _REMAT)
    if mode.startswith("memory"):
        notes.append("A memory budget of activations is read as selective checkpointing.")
    return replace(
        plan,
        schedule=schedule,
        virtual=virtual,
        layout=layout,
        context_by="ring" if ring else "gather",
        remat=_REMAT[mode],
        sequence=said.take("parallelism.enable_sequence_parallel", True) or plan.tensor == 1,
        dtype=_dtype(said),
        optimizer=_optimizer(said),
    ), notes


_DEGREES = TERMS.tables["degrees"]


def _with_experts(plan: Plan, degree: int, experts: int, said: TitanSaid) -> tuple[Plan, list[str]]:
    """Experts over `degree` ranks: those of tensor first, then of context, then data-parallel ones."""
    sliced = said.take("parallelism.expert_tensor_parallel_degree", 1)
    if not experts or (degree == 1 and plan.tensor == 1):
        return plan, []
    if degree == 1:
        return replace(plan, etp=True), [TERMS.say("sliced_experts")]
    if sliced > 1:  # older releases: experts on their own axis, sliced over tensor
        inside = plan.context if degree % plan.context == 0 and plan.context > 1 else 1
        rest = degree // inside
        if plan.fsdp % rest:
            raise InputError(f"Experts over {degree} ranks do not divide data_parallel_shard_degree {plan.fsdp}.")
        fold = "context" if inside > 1 else "tensor"
        return replace(plan, etp=True, expert=rest, fsdp=plan.fsdp // rest, fold=fold), []
    over = plan.tensor * plan.context
    for inside, fold in ((over, "context" if plan.context > 1 else "tensor"), (plan.tensor, "tensor")):
        rest = degree // inside
        if degree % inside == 0 and plan.fsdp % rest == 0 and (rest == 1 or fold == "context" or plan.context == 1):
            return replace(plan, expert=rest, fsdp=plan.fsdp // rest, fold=fold), []
    note = TERMS.say("partial_experts", degree=degree, plan=plan)
    return plan, [note]


def _pipeline(said: TitanSaid, pipe: int, layers: int) -> tuple[str, int, str]:
    names = {name.lower(): own for own, name in SCHEDULES.items()}
    named, keys = str(said.take("parallelism.pipeline_parallel_schedule", "1F1B")), TERMS.lists["stage_keys"]
    own = {key: said.values[f"parallelism.{key}"] for key in keys if f"parallelism.{key}" in said.values}
    said.used |= {f"parallelism.{key}" for key in keys}
    if pipe == 1:
        return "1f1b", 1, "even"
    schedule = names.get(named.lower().removeprefix("schedule"))
    if schedule is None:
        raise unknown("pipeline schedule of torchtitan that is planned here called", named, SCHEDULES.values())
    virtual, layout = layout_read(own, pipe, schedule, layers)
    if schedule == "interleaved" and virtual == 1:
        return "1f1b", 1, layout
    return schedule, virtual if schedule == "interleaved" else 1, layout


def _dtype(said: TitanSaid) -> str:
    plain = "fp32" if str(said.take("training.mixed_precision_param", "bfloat16")) == "float32" else "bf16"
    return said.dtype or plain


def _optimizer(said: TitanSaid) -> str:
    name = str(said.take("optimizer.name", said.values.get("optimizer.param_groups.0.optimizer_name", "AdamW")))
    if "muon" in name.lower():
        return "muon"
    pure = str(said.take("training.dtype", "float32")) == "bfloat16"
    narrow = str(said.values.get("optimizer.implementation")) == "fused_opt_states_bf16"
    return "adam-bf16" if pure or narrow else "adam"


def _stack(source: Source, said: TitanSaid) -> str:
    """The stack whose expectation fits: the header's where the flags agree with it."""
    compiles, overlapped = said.take("compile.enable", False), said.take("compile.enable_async_tensor_parallel", False)
    kept = str(source.kept.get("stack", ""))
    if kept and ("eager" in kept) != compiles and ("async" in kept or not overlapped):
        return kept
    if not compiles:
        return "torchtitan-eager"
    recipes = " ".join(str(value) for name, value in said.values.items() if name.endswith("recipe_name"))
    if said.dtype == "fp8" and ("rowwise" in recipes or not said.old):
        return "torchtitan-rowwise"
    return "torchtitan-async" if overlapped else "torchtitan-2025" if said.old else "torchtitan"
