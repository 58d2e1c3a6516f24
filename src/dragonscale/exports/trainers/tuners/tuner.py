"""A front end of fine-tuning: how its configs and commands are recognised, and the Trainer's run that they come to.

`terms/NAME.toml` has what it is started by (`starts`), the names that its configs have (`marks`, `some`), what it calls
the settings of a run (`names`), what its words stand for (`meaning`), its own defaults (`usual`), and settings that the
planner has no word for, each with how far off the answer may be (`heavy`). Everything else that its table of keys has
changes nothing that is planned.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

from dragonscale.errors import InputError, shorten, unknown
from dragonscale.exports.imported import Given, Imported, Source, training_file
from dragonscale.exports.keys import KeyTable, ReadFlags, dotted, load_keys, options, whole
from dragonscale.exports.model_names import preset_named
from dragonscale.exports.runs import TrainingRun, experts_of
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.terms import Terms, load_terms
from dragonscale.exports.trainers.hub_run import PAIRED, PLANNED, HubRun, chips_of_run, file_of, flat_config, tuning_of
from dragonscale.exports.trainers.megatron.read_megatron import plan_read
from dragonscale.exports.trainers.tuners.python_script import script_settings
from dragonscale.exports.trainers.tuners.write_tuner import write_tuner
from dragonscale.exports.written import WrittenFiles
from dragonscale.models import load_model
from dragonscale.training.plan.builds import trainers
from dragonscale.training.plan.plan_file import TrainingFile

CONFIGS = (".yaml", ".yml", ".json")
CONFIGURED = ("parallelism_config_", "distributed_type", "mixed_precision")
"""What accelerate's config says, and not the arguments."""
ALSO = load_terms("tuners").lists["read_apart"]
"""Settings that are read apart from those of a run."""


@dataclass
class TunerSettings:
    """What a config or a command says in the front end's own names, and what it was started by."""

    settings: dict[str, Any]
    start: str = ""
    command: ShellCommand | None = None


@dataclass(frozen=True)
class Tuner:
    """A front end by its name."""

    name: str

    @property
    def terms(self) -> Terms:
        return load_terms(self.name)

    @property
    def keys(self) -> KeyTable:
        return load_keys(self.name)

    def write(self, run: TrainingRun) -> WrittenFiles:
        """Its config, and the command of a host."""
        return write_tuner(self.name, self.terms, self.keys, run)

    def recognises(self, source: Source) -> bool:
        """A config by its names, a command by what it starts, a script by what it imports."""
        table = source.table
        if table is not None:
            adapters = self.name == "trl" and "peft_type" in table
            return adapters or self._marked(dict(dotted(table, ("fsdp_config",))))
        return self._command(source) is not None or (self.name == "trl" and bool(script_settings(source.text)))

    def _marked(self, settings: dict[str, Any]) -> bool:
        """Whether settings are those of its configs."""
        lists = self.terms.lists
        whole_set = all(mark in settings for mark in lists["marks"]) and "distributed_type" not in settings
        return whole_set and any(name in settings for name in lists["some"])

    def _command(self, source: Source) -> tuple[ShellCommand, int, str] | None:
        """The command that starts it, where its arguments begin, and what it is started by; a script of a plain name is
        its own where the arguments are."""
        for command in source.commands:
            for start in self.terms.tables["starts"]:
                first, *more = start.split()
                for at, word in enumerate(command.words):
                    named = word == first or word.endswith(("/" + first, "." + first))
                    if not named or command.words[at + 1 : at + 1 + len(more)] != more:
                        continue
                    begin = at + 1 + len(more)
                    settings = _words(source, command.words[begin:], self.terms) if first.endswith(".py") else {}
                    marks = {*self.terms.lists["marks"], *self.terms.lists["some"]}
                    if not first.endswith(".py") or marks & settings.keys():
                        return command, begin, start
        return None

    def _said(self, source: Source) -> TunerSettings:
        if source.table is not None:
            return TunerSettings(dict(dotted(source.table, ("fsdp_config",))))
        found = self._command(source)
        if found is None:
            return TunerSettings(script_settings(source.text))
        command, begin, start = found
        return TunerSettings(_words(source, command.words[begin:], self.terms, needed=True), start, command)

    def read(self, source: Source, given: Given) -> Imported:
        """The plan of a config, a command or a script."""
        said = self._said(source)
        settings = {name: value for name, value in said.settings.items() if value is not None}
        megatron, by_megatron = self.terms.lists.get("megatron", ()), said.start.startswith("megatron ")
        run = self._run(source, said, settings)
        if by_megatron or any(name in settings for name in megatron):
            usual = self.terms.tables.get("megatron", {}) if by_megatron else {}
            file = _megatron_file(source, given, run, usual | settings)
        else:
            unsloth = {"stack": "unsloth"} if _is_on(settings.get("use_unsloth", "")) else {}
            file = file_of(source, given, run, self.terms.texts | unsloth)
        heavy = self.terms.tables["heavy"]
        # a table of settings (`qat: {weight_dtype: int4}`) weighs as its name does
        outer = {name: name if name in heavy else name.partition(".")[0] for name in settings}
        unplanned = [*dict.fromkeys(one for name, one in outer.items() if one in heavy and _is_on(settings[name]))]
        notes = [*run.notes, *dict.fromkeys(heavy[name] for name in unplanned)]
        unplanned += run.unplanned
        rest = [
            name for name in settings if outer[name] not in heavy and not self._reads(name) and name not in megatron
        ]
        known = [name for name in rest if self.keys.known(name) or self.keys.known(name.partition(".")[0])]
        # PEFT's file and calls in a script have names that are not its own
        ours = said.command is not None or (source.table is not None and "peft_type" not in settings)
        stray = [name for name in rest if name not in known and not name.endswith("_component_")] if ours else []
        wide = file.lora_rank and not file.frozen and file.method != "qlora" and run.loaded == "float32"
        notes += [*self.terms.notes({"wide_frozen": wide and self.name == "trl"}), *_length_notes(file, run)]
        if self.name == "trl" and source.table is not None and file.plan.data > 1 and "peft_type" not in settings:
            notes.append(self.terms.say("replicated", source=source))
        lists = (tuple(notes), tuple(known), tuple(unplanned), tuple(stray))
        return Imported(self.name, self.keys.version, file, *lists)

    def _reads(self, name: str) -> bool:
        tables = self.terms.tables
        return name in tables["names"] or name in tables.get("meaning", {}) or name in PLANNED or name in ALSO

    def _run(self, source: Source, said: TunerSettings, settings: dict[str, Any]) -> HubRun:
        """The Trainer's run that settings come to: the front end's defaults, then what is said."""
        tables, arguments = self.terms.tables, dict[str, Any](self.terms.tables["usual"])
        if said.start and tables["starts"][said.start]:
            arguments["trainer"] = tables["starts"][said.start]
        told = next((name for name in tables.get("tells", {}) if source.table is not None and name in settings), "")
        if told:
            arguments["trainer"] = tables["tells"][told]
        if said.start.startswith("megatron "):
            arguments |= {name: value for name, value in tables["megatron"].items() if name in PLANNED}
        for name, value in settings.items():
            if name in tables.get("meaning", {}):
                arguments |= self._meaning(name, value)
            elif name in tables["names"] or name in PLANNED:
                arguments[tables["names"].get(name, name)] = value
        run = HubRun(arguments=arguments, owner=self.keys.software)
        if told:
            run.notes.append(self.terms.say("told_by", name=told, trainer=arguments["trainer"].upper(), source=source))
        run.spelt = {known: own for own, known in tables["names"].items()}
        _components(run, settings, tables)
        _launched(source, said, settings, run)
        _checkpoint(run)
        inner = settings.get("fsdp_config")
        if isinstance(inner, dict):
            run.config |= flat_config({"fsdp_config": inner})
            run.config.setdefault("distributed_type", "FSDP")
        for name in [name for name in arguments if name.startswith(CONFIGURED)]:
            run.config[name] = arguments.pop(name)
        return run

    def _meaning(self, name: str, value: Any) -> dict[str, Any]:
        words, text = self.terms.tables["meaning"][name], str(value).strip().lower()
        known = {word.lower(): own for word, own in words.items()}
        if text not in known and "*" not in known:
            raise unknown(f"{self.keys.software}'s {name} called", value, words)
        found = known.get(text, known.get("*", {}))
        return {key: value if own == "*" else own for key, own in found.items()}


def _words(source: Source, words: list[str], terms: Terms, needed: bool = False) -> dict[str, Any]:
    """The settings of a command's words: files that it names, then `name=value` and `--name value`."""
    settings: dict[str, Any] = {}
    flags = {name.replace("-", "_"): [one for one in values if "=" not in one] for name, values in options(words)}
    named = [word for word in words if word.endswith(CONFIGS) and not word.startswith("-") and "=" not in word]
    others = {value for name, values in flags.items() if name != "config" for value in values}
    for name in [*flags.get("config", ()), *(word for word in named if word not in others)]:
        inner, row = source.beside(name), terms.tables.get("configs", {}).get(name)
        if row is not None:
            settings |= dict(zip(terms.lists["config_names"], row, strict=True))
        elif inner is not None:
            settings |= dict(dotted(inner.table or {}, ("fsdp_config",)))
        elif needed:
            raise InputError(
                f"{source.shown} takes its settings from {shorten(name)}, which is not here; give that file."
            )
    for word in words:
        name, equals, value = word.partition("=")
        if equals and not word.startswith("-") and name.replace(".", "").replace("_", "").isalnum():
            settings[name.lstrip("+")] = value
    for name, values in flags.items():
        if name != "config":
            settings[name] = values[0] if len(values) == 1 else ",".join(values) or True
    return settings


def _launched(source: Source, said: TunerSettings, settings: dict[str, Any], run: HubRun) -> None:
    """The processes and hosts of a run: what starts it, and variables that its own launcher reads."""
    command = said.command
    if command is None:
        return
    launch, env = command.launch, command.env
    named = launch.get("config_file") or str(settings.get("accelerate_config", ""))
    inner = source.beside(named)
    if inner is not None:
        run.config |= flat_config(inner.table or {})
    elif "zero" in named:
        run.arguments.setdefault("deepspeed", named)
    elif named:
        run.notes.append(f"{named} is not here, so that only the flags of the launch are read.")
    run.config |= {name: value for name, value in launch.items() if name.startswith(("fsdp_", "parallelism_"))}
    if launch.get("use_fsdp"):
        run.config["distributed_type"] = "FSDP"
    hosts, each = env.get("NNODES", ""), env.get("NPROC_PER_NODE") or settings.get("nproc_per_node")
    hosts = hosts or launch.get("nnodes", "")  # torchrun takes a range too
    run.hosts = int(hosts) if re.fullmatch(r"[0-9]{1,6}", hosts) else 0
    if said.start.endswith("single_device"):
        run.processes = 1
    elif settings.get("num_processes"):
        run.processes = whole(settings["num_processes"], "num_processes")
    elif each:
        run.processes = whole(each, "NPROC_PER_NODE") * max(run.hosts, 1)
    else:
        run.processes = command.processes or len([one for one in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if one])


def _components(run: HubRun, settings: dict[str, Any], tables: dict[str, dict[str, Any]]) -> None:
    """What the parts of a torchtune config say: the model, its adapters, and where they are put."""
    builder = str(settings.get("model._component_", ""))
    if not builder:
        return
    last = builder.rpartition(".")[2]
    if found := _built(builder, tables):
        run.arguments["model_name_or_path"] = found
    if teacher := str(settings.get("teacher_model._component_", "")):
        run.arguments |= {"trainer": "distill", "teacher": _built(teacher, tables) or teacher}
    if not last.startswith(("lora_", "qlora_")):
        return
    quantised = last.startswith("qlora_") or _is_on(settings.get("model.quantize_base", ""))
    attention = settings.get("model.lora_attn_modules", ["q_proj", "v_proj", "output_proj"])
    words = attention if isinstance(attention, list) else re.findall(r"\w+", str(attention))
    words = ["o_proj" if word == "output_proj" else word for word in words]
    words += ["gate_proj", "up_proj", "down_proj"] if _is_on(settings.get("model.apply_lora_to_mlp", True)) else []
    run.arguments |= {"use_peft": True, "load_in_4bit": quantised, "lora_target_modules": words}


def _built(builder: str, tables: dict[str, dict[str, Any]]) -> str:
    """The model that a builder of torchtune makes, with adapters or without; empty where it is not known."""
    package, _, last = builder.rpartition(".")
    plain = last.removeprefix("q").removeprefix("lora_") if last.startswith(("lora_", "qlora_")) else last
    every = trainers()["torchtune"].presets | tables["also_built"]
    models = {own.removesuffix("_instruct"): model for model, own in every.items()}
    return models.get(f"{package}.{plain}".removesuffix("_instruct").removesuffix("_base"), "")


_STORED = re.compile(r"[-_](?:unsloth-)?(bnb-4bit|bnb-nf4|gptq|awq|aqlm)(?:[-_]\w+)*$", re.IGNORECASE)


def _checkpoint(run: HubRun) -> None:
    """A checkpoint that is stored in four bits is loaded in them; those of other formats are counted as nf4."""
    name = str(run.arguments.get("model_name_or_path", ""))
    if stored := _STORED.search(name):
        run.arguments |= {"model_name_or_path": name[: stored.start()], "load_in_4bit": True}
        if not stored[1].lower().startswith("bnb"):
            run.notes.append(f"Weights in {stored[1].upper()} are counted as nf4, which takes about as many bytes.")


def _is_on(value: Any) -> bool:
    return str(value).strip().lower() not in ("", "false", "none", "null", "0", "0.0", "[]")


def _length_notes(file: TrainingFile, run: HubRun) -> list[str]:
    """That sequences which are not packed are as long as they are at most."""
    if not file.seq or run.truth("packing"):
        return []
    text = f"Sequences are padded and not packed: the answer is of {file.seq:,} tokens each"
    return [f"{text}, and a dataset of shorter ones takes less time in about that proportion."]


def _megatron_file(source: Source, given: Given, run: HubRun, settings: dict[str, Any]) -> TrainingFile:
    """The plan of a front end's Megatron form, whose settings are Megatron's flags by other letters."""
    tuning = tuning_of(source, run)
    piece, chips = chips_of_run(source, given, run, run.processes)
    name = given.model or preset_named(str(run.arguments.get("model_name_or_path", "")))
    if not name:
        raise source.needs("its model", "it by --model")
    model, table = load_model(name), load_keys("megatron")
    flags = {f"--{key.replace('_', '-')}": value for key, value in settings.items()}
    read = ReadFlags({key: value for key, value in flags.items() if table.known(key)}, of=f"{run.owner}'s ")
    for flag in [flag for flag, value in read.values.items() if not _is_on(value)]:
        del read.values[flag]
    read.values.setdefault("--micro-batch-size", run.number("per_device_train_batch_size", 1))
    if run.truth("bf16"):
        read.values["--bf16"] = True
    plan, batch, notes = plan_read(read, chips, model.n_layers, experts_of(model) > 0)
    run.notes += notes
    rounds = run.number("gradient_accumulation_steps", 1) if "--global-batch-size" not in flags else 1
    twice = 2 if tuning.get("method") in PAIRED else 1
    plan, seq = replace(plan, microbatch=plan.microbatch * twice), run.number("max_length", 0, least=0)
    file = training_file(source, given.on(piece), plan, batch * rounds * twice, seq, name, "megatron-core", 0)
    return replace(file, **tuning)
