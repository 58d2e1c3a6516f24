"""What a launch of Hugging Face's software says: the config of accelerate with its tables laid flat, and the script's
arguments."""

from dataclasses import dataclass, field
from typing import Any

from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.values import truth, whole


@dataclass
class HubRun:
    """What a launch says: the config's entries with the tables laid flat, the script's arguments, the processes and
    hosts."""

    config: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    processes: int = 0
    hosts: int = 0
    notes: list[str] = field(default_factory=list)

    def number(self, name: str, default: int = 0, least: int = 1) -> int:
        """A whole number of the config or the arguments; nothing and "auto" leave it unsaid. The Trainer takes its own
        steps of accumulation before those of the config."""
        own_first = name == "gradient_accumulation_steps"
        places = (self.arguments, self.config) if own_first else (self.config, self.arguments)
        value = next((table[name] for table in places if table.get(name) not in (None, "auto")), None)
        return default if value is None else whole(value, f"Hugging Face's {name}", least)

    def truth(self, name: str) -> bool:
        """A switch of the config or the arguments; "auto" leaves it off."""
        value = self.config.get(name, self.arguments.get(name, False))
        return value != "auto" and truth(value, f"Hugging Face's {name}")


def flat_config(table: dict[str, Any]) -> dict[str, Any]:
    """A config with its tables laid flat, as accelerate itself does; names in them may lack the table's prefix."""
    prefixes = {f"{name}_config": f"{name}_" for name in ("fsdp", "fp8", "dynamo")}
    prefixes["parallelism_config"] = "parallelism_config_"
    found: dict[str, Any] = {}
    for name, value in table.items():
        if isinstance(value, dict) and name.endswith("_config"):
            prefix = prefixes.get(name, "")
            found |= {key if key.startswith(prefix) else prefix + key: own for key, own in value.items()}
        else:
            found[name] = value
    return found


def of_command(source: Source, command: ShellCommand) -> HubRun:
    run, launch = HubRun(), dict(command.launch)
    if command.launcher == "accelerate":
        inner = source.beside(launch.get("config_file", ""))
        if inner is not None:
            run.config = flat_config(inner.table or {})
        elif "config_file" in launch:
            run.notes.append(f"{launch['config_file']} is not here, so that only the flags of the launch are read.")
        run.config |= {name.replace("-", "_"): value for name, value in launch.items() if name != "config_file"}
        if launch.get("use_fsdp"):
            run.config["distributed_type"] = "FSDP"
        elif launch.get("use_deepspeed"):
            run.config["distributed_type"] = "DEEPSPEED"
    run.hosts = run.number("num_machines") or _count(launch.get("nnodes", ""))
    run.processes = (
        max(run.number("num_processes", least=-1), 0) or command.processes
    )  # -1 is accelerate's word for not said
    run.arguments = _arguments(source, command.words)
    return run


def _count(text: str) -> int:
    return whole(text, "nnodes") if text.isdecimal() else 0  # torchrun takes a range too


def _arguments(source: Source, words: list[str]) -> dict[str, Any]:
    """The arguments of a script: flags, or the JSON or YAML file that stands alone after it."""
    found: dict[str, Any] = {}
    at = next((place for place, word in enumerate(words) if word.endswith(".py")), 0) + 1
    rest = words[at:]
    if len(rest) == 1 and rest[0].endswith((".json", ".yaml", ".yml")):
        inner = source.beside(rest[0])
        return dict(inner.table or {}) if inner is not None else {}
    place = 0
    while place < len(rest):
        name, equals, value = rest[place].lstrip("-").partition("=")
        place += 1
        if not rest[place - 1].startswith("--"):
            continue
        if not equals:
            value = True
            if place < len(rest) and not rest[place].startswith("--"):
                value = rest[place]
                place += 1
        found[name.replace("-", "_")] = value
    return found
