"""Plans out of torchtitan's words, of both kinds that are published.

Since 0.3 a run is `--module llama3 --config llama3_8b` (or `MODULE=llama3 CONFIG=llama3_8b ./run_train.sh`) with a flag
for each setting that differs; what the config function sets is in the table of keys. Before, it was a TOML file with
the sections `[model]`, `[training]`, `[parallelism]` and so on, given by `--job.config_file` (or `CONFIG_FILE=…`), and
the same flags. Names that changed over the years are read as today's; what a config function sets counts until a flag
says otherwise.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError, unknown
from dragonscale.exports.imported import Given, Imported, Source, slice_counted, training_file
from dragonscale.exports.keys import dotted, load_keys, options, truth, whole
from dragonscale.exports.model_names import model_of_sizes
from dragonscale.exports.runs import experts_of
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.torchtitan import titan_models
from dragonscale.exports.trainers.torchtitan.titan_models import SCHEDULES, layout_read
from dragonscale.models import load_model
from dragonscale.models.assumed import read_asked
from dragonscale.models.catalogue import is_preset, model_names, preset
from dragonscale.training.plan.plan import Plan
from dragonscale.training.plan.plan_file import TrainingFile

TERMS = load_terms("torchtitan")

OLD = TERMS.tables["old_names"]
_CONVERTERS = (("mx", "mxfp8"), ("float8", "fp8"), ("fp8", "fp8"))


@dataclass
class TitanSaid:
    """What a config says: settings by section and name, its module and flavor, the sizes of its own model, the release
    it is for."""

    values: dict[str, Any] = field(default_factory=dict)
    module: str = ""
    flavor: str = ""
    dtype: str = ""
    sizes: dict[str, Any] = field(default_factory=dict)
    old: bool = False
    unknown: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def take(self, name: str, default: Any) -> Any:
        """A setting, of the kind of its default; a number is at least 1, or what stands for none by default (0, -1)."""
        self.used.add(name)
        value = self.values.get(name, default)
        if isinstance(default, bool):
            return truth(value, f"torchtitan's {name}")
        if isinstance(default, int):
            return whole(value, f"torchtitan's {name}", min(default, 1))
        return value


def of_command(source: Source, command: ShellCommand) -> TitanSaid:
    flags, remat = _flags(command.words)
    config = str(flags.pop("job.config_file", "") or command.env.get("CONFIG_FILE", ""))
    module, function = (str(flags.pop(name, "") or command.env.get(name.upper(), "")) for name in ("module", "config"))
    if config or not (module or function):
        inner = source.beside(config)
        usual = _usual(config) if inner is None else {}
        said = of_table((inner.table if inner is not None else None) or {}, {**usual, **flags})
        if usual:
            file, version = config.rsplit("/", 1)[-1], load_keys("torchtitan").version
            said.notes.append(TERMS.say("assumed_config", file=file, version=version))
            said.used |= {name for name in usual if name not in flags}
    else:
        said = _of_function(source, module or "llama3", function, flags)
    if remat:
        said.values["activation_checkpoint"] = remat
    return said


def _usual(path: str) -> dict[str, Any]:
    """What today's config function sets that has the name of a file: `llama3_8b` of `llama3_8b.toml`."""
    name = path.rsplit("/", 1)[-1].removesuffix(".toml").lower().replace("-", "_")
    for own, sets in titan_models.functions().items():
        module, _, function = own.partition("/")
        if function == name:
            found = {key: value for key, value in sets.items() if "." in key or key == "activation_checkpoint"}
            return {**found, "model.name": module, "model.flavor": sets["model"]}
    return {}


def _flags(words: list[str]) -> tuple[dict[str, Any], str]:
    """Flags `--section.key value`, `--section.key=value`, `--section.key` and `--section.no-key`; and the kind of
    checkpointing, a word of its own (`activation-checkpoint:full`)."""
    found: dict[str, Any] = {}
    remat, mark = "", "activation-checkpoint:"
    for name, values in options(f"--{word}" if word.startswith(mark) else word for word in words):
        section, _, last = name.replace("-", "_").rpartition(".")
        if name.startswith(mark):
            remat = name.removeprefix(mark)
        elif not values and last.startswith("no_"):
            found[f"{section}.{last[3:]}"] = False
        else:
            found[name.replace("-", "_")] = values[0] if len(values) == 1 else values or True
    return found, remat


def _of_function(source: Source, module: str, function: str, flags: dict[str, Any]) -> TitanSaid:
    """A command of today's release: what its config function sets, then its flags."""
    table = load_keys("torchtitan")
    flags = {OLD.get(name, name) if table.known(f"--{name}") is None else name: value for name, value in flags.items()}
    strange = [name for name in flags if table.known(f"--{name}") is None]
    said = TitanSaid(unknown=[name for name in strange if not name.startswith("activation_checkpoint")])
    own = source.beside(f"{module.rpartition('.')[2]}.py")
    if own is not None:
        found = titan_models.read_config(own.text)
        said.module, said.flavor = found.get("module", ""), found.get("flavor", "")
        said.dtype, said.sizes = found.get("dtype", ""), found.get("sizes", {})
    else:
        said.module = module.removesuffix(".config_registry").rpartition(".")[2]
        every = {name: sets for name, sets in titan_models.functions().items() if name.startswith(f"{said.module}/")}
        if every and f"{said.module}/{function}" not in every and "debug" not in function:
            known = [name.partition("/")[2] for name in every]
            raise unknown(f"config of torchtitan's {said.module} called", function, known)
        sets = every.get(f"{said.module}/{function}", {})
        said.flavor, said.dtype = sets.get("model", ""), sets.get("dtype", "")
        said.values |= {name: value for name, value in sets.items() if "." in name or name == "activation_checkpoint"}
    inherited = set(said.values)
    said.values |= {name: value for name, value in flags.items() if name not in said.unknown}
    said.used |= inherited - set(flags)  # what a config function sets is not the user's to hear of
    return said


def of_table(table: dict[str, Any], flags: dict[str, Any] | None = None) -> TitanSaid:
    """A TOML file of an older release, and the flags beside it."""
    values = {**dict(dotted(table)), **(flags or {})}
    said = TitanSaid({OLD.get(name, name): value for name, value in values.items()}, old=True)
    said.module, said.flavor = str(said.take("model.name", "")), str(said.take("model.flavor", ""))
    marks = str(said.take("model.converters", []))
    said.used |= {name for name in said.values if name.startswith(("float8.", "quantize.", "mx."))}
    if said.take("float8.enable_float8_linear", False):
        marks += " float8"
    said.dtype = next((dtype for mark, dtype in _CONVERTERS if mark in marks), "")
    return said


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
    here = command.env.get("NGPU", "") if command is not None else ""
    processes = (command.processes if command is not None else 0) or (whole(here, "NGPU") if here.isdecimal() else 0)
    file, notes = _file(source, given, said, processes)
    left = [name for name in said.values if name not in said.used]
    ignored = [name for name in left if name.split(".")[0] in HARMLESS or name.startswith(_HARMLESS_KEYS)]
    unplanned, told = [name for name in left if name not in ignored], (*said.notes, *notes)
    version = load_keys("torchtitan").version if not said.old else "0.1 or 0.2"
    return Imported("torchtitan", version, file, told, tuple(ignored), tuple(unplanned), tuple(said.unknown))


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
    piece, steps = slice_counted(source, given, plan.chips), said.take("training.steps", 0)
    if piece is not None and piece.chips != plan.chips:
        raise InputError(f"{source.shown} is for {plan.chips} chips, and {piece} has {piece.chips}.")
    return training_file(source, given.on(piece), plan, batch, seq, model, _stack(source, said), steps), notes


def _model(source: Source, given: Given, said: TitanSaid) -> tuple[str, int, int]:
    """The model, its layers and its experts; nothing where the config does not say."""
    kept = read_asked(given.model or source.kept_word("model")).text
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
        raise source.needs(f"a model that is known here ({said.module or '?'} {said.flavor or '?'})", "it by --model")
    model = load_model(given.model or kept)
    return given.model or kept, model.n_layers, experts_of(model)


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
            raise source.needs("how many chips it is for", "them by --on, such as h100:8")
        rest = math.prod(degrees.values()) // degrees["expert"]
        if world % rest:
            raise InputError(f"{source.shown} splits {rest} ways beside FSDP, which do not divide {world} chips.")
        shard = world // rest
    plan = Plan(fsdp=shard, **{name: degree for name, degree in degrees.items() if name != "expert"})
    plan, notes = _with_experts(plan, degrees["expert"], experts, said)
    reshard = str(said.take("parallelism.fsdp_reshard_after_forward", "default"))
    plan = replace(plan, zero=2 if reshard == "never" or (reshard == "default" and plan.pipe > 1) else 3)
    schedule, virtual, layout = _pipeline(said, plan.pipe, layers)
    ring = str(said.take("parallelism.context_parallel_rotate_method", "allgather")) == "alltoall"
    wide = "fp32" if str(said.take("training.mixed_precision_param", "bfloat16")) == "float32" else ""
    mode = str(said.take("activation_checkpoint", "selective"))
    hosted = plan.zero == 3 and said.take("training.enable_cpu_offload", False)
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
        dtype=said.dtype or wide or "bf16",
        optimizer=_optimizer(said),
        offload="parameters" if hosted else "none",
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
    kept = source.kept_word("stack")
    if kept and ("eager" in kept) != compiles and ("async" in kept or not overlapped):
        return kept
    if not compiles:
        return "torchtitan-eager"
    recipes = " ".join(str(value) for name, value in said.values.items() if name.endswith("recipe_name"))
    if said.dtype == "fp8" and ("rowwise" in recipes or not said.old):
        return "torchtitan-rowwise"
    return "torchtitan-async" if overlapped else "torchtitan-2025" if said.old else "torchtitan"
