"""What a torchtitan config says, by section and name: of a command of today's release, or of a TOML file of an older
one.

Names that changed over the years are read as today's; what a config function sets counts until a flag says otherwise.
"""

from dataclasses import dataclass, field
from typing import Any

from dragonscale.errors import unknown
from dragonscale.exports.keys import load_keys
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.terms import load_terms
from dragonscale.exports.trainers.torchtitan import titan_models as titan_models
from dragonscale.exports.trainers.torchtitan.config import read_config
from dragonscale.exports.values import truth, whole

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
    flags, remat = _dotted(command.words)
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


def _dotted(words: list[str]) -> tuple[dict[str, Any], str]:
    """Flags `--section.key value`, `--section.key=value`, `--section.key` and `--section.no-key`; and the kind of
    checkpointing."""
    found: dict[str, Any] = {}
    remat, at = "", 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("activation-checkpoint:"):
            remat = word.partition(":")[2]
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not words[at].startswith(("--", "activation-checkpoint:")):
            values.append(words[at])
            at += 1
        name = name.replace("-", "_")
        section, _, last = name.rpartition(".")
        if not values and last.startswith("no_"):
            found[f"{section}.{last[3:]}"] = False
        else:
            found[name] = values[0] if len(values) == 1 else values or True
    return found, remat


def _of_function(source: Source, module: str, function: str, flags: dict[str, Any]) -> TitanSaid:
    """A command of today's release: what its config function sets, then its flags."""
    table = load_keys("torchtitan")
    flags = {OLD.get(name, name) if table.known(f"--{name}") is None else name: value for name, value in flags.items()}
    strange = [name for name in flags if table.known(f"--{name}") is None]
    said = TitanSaid(unknown=[name for name in strange if not name.startswith("activation_checkpoint")])
    own = source.beside(f"{module.rpartition('.')[2]}.py")
    if own is not None:
        found = read_config(own.text)
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
    values: dict[str, Any] = {}
    _flatten(table, "", values)
    values |= flags or {}
    said = TitanSaid({OLD.get(name, name): value for name, value in values.items()}, old=True)
    said.module, said.flavor = str(said.take("model.name", "")), str(said.take("model.flavor", ""))
    marks = " ".join(map(str, _list(said.take("model.converters", []))))
    for name in [name for name in said.values if name.startswith(("float8.", "quantize.", "mx."))]:
        said.used.add(name)
    if said.take("float8.enable_float8_linear", False):
        marks += " float8"
    said.dtype = next((dtype for mark, dtype in _CONVERTERS if mark in marks), "")
    return said


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else str(value).split(",")


def _flatten(table: dict[str, Any], prefix: str, into: dict[str, Any]) -> None:
    for name, value in table.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", into)
        else:
            into[prefix + name] = value
