"""Recipes of Megatron-Bridge and commands that start one, read as plans.

A recipe is read without running it (`recipe`): its assignments to fields, the keywords of its configs; then overrides
on a command line. Its fields are Megatron-LM's flags by other names, and are read as those.
"""

from dataclasses import replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.flags import ReadFlags
from dragonscale.exports.imported import Given, Imported
from dragonscale.exports.keys import load_keys
from dragonscale.exports.model_names import hub_id, preset_named
from dragonscale.exports.shell import ShellCommand
from dragonscale.exports.source import Source
from dragonscale.exports.trainers.megatron.read_megatron import read_run
from dragonscale.exports.trainers.megatron_bridge.bridge_names import CONFIGS, flags_of
from dragonscale.exports.trainers.megatron_bridge.recipe import COMMON, library_model, recipe_fields


def recognises(source: Source) -> bool:
    return _found(source) is not None


def _found(source: Source) -> tuple[Source | None, ShellCommand | None] | None:
    """The recipe and the command that starts it, one of which may not be there."""
    if "megatron.bridge" in source.text and "import" in source.text and not source.text.startswith("#!"):
        return source, None
    for command in source.commands:
        script = next((word for word in command.words if word.endswith(".py")), "")
        beside = source.beside(script) if script else None
        if beside is not None and "megatron.bridge" in beside.text:
            return beside, command
        if script.endswith("run_recipe.py") and any(word.startswith("--recipe") for word in command.words):
            return None, command
    return None


def read(source: Source, given: Given) -> Imported:
    """The plan of a recipe, of a script that starts one, or of a command with overrides."""
    found = _found(source)
    assert found is not None
    file, command = found
    fields, named = recipe_fields(file) if file is not None else ({}, "")
    if command is not None:
        overrides, library = _overrides(command)
        fields, named = ({} if file else COMMON) | fields | overrides, named or library
    table, kept = load_keys("megatron-bridge"), source if source.kept or file is None else file
    own = [name for name in fields if "." in name and name.split(".")[0] in (*CONFIGS, "model")]
    unknown = [name for name in own if table.known(name) is None]
    flags = flags_of({name: value for name, value in fields.items() if name not in unknown})
    values = {flag: _text(value) for flag, value in flags.items() if flag.startswith("--")}
    other = [name for name in flags if not name.startswith("--")]
    read, processes = ReadFlags(values, [], unknown), command.processes if command else 0
    model = _known(named, str(kept.kept.get("model", "")))
    imported = read_run(kept, given, read, processes, "megatron-bridge", table.version, model)
    return replace(imported, ignored=(*imported.ignored, *other))


def _known(named: str, kept: str) -> str:
    """The model of a repository: that of an export's header where it is of the same repository."""
    return kept if named and kept and hub_id(kept) == named else preset_named(named)


def _text(value: Any) -> Any:
    return value if isinstance(value, bool | list) else str(value)


def _overrides(command: ShellCommand) -> tuple[dict[str, Any], str]:
    """The fields and the library's recipe that a command names."""
    found: dict[str, Any] = {}
    recipe_name = ""
    for place, word in enumerate(command.words):
        name, equals, value = word.lstrip("+").partition("=")
        if name == "--recipe":
            recipe_name = value or next(iter(command.words[place + 1 :]), "")
        elif equals and "." in name and not name.startswith("-"):
            found[name] = {"true": True, "false": False, "null": None}.get(value.lower(), value)
    if not recipe_name:
        return found, ""
    model = library_model(recipe_name)
    if not model:
        raise InputError(f"The model of recipe {recipe_name!r} is not known; give --model.")
    return found, model
