"""The answer to `dscale completion SHELL`: the script, made of tables and of what no command changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragonscale.blocks.sheet import Sheet, Verbatim
from dragonscale.commands.questions.faces import SHELLS, CompletionQuestion
from dragonscale.commands.record import Record
from dragonscale.errors import unknown
from dragonscale.faces.cli.completion.offers import FILES, FREE, SWITCH, Offers, all_offers, by_kind, one_line
from dragonscale.faces.command import Command
from dragonscale.listener import Listener


class Completion(Record):
    """A script for a shell."""

    shell: str
    script: str

    def headline(self) -> str:
        return f"completion for {self.shell}, {len(self.script.splitlines())} lines"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  the script is all there is
        return Sheet((Verbatim(self.script.rstrip("\n")),))


def ask(commands: Mapping[str, Command[Any, Any]], question: CompletionQuestion, listener: Listener) -> Completion:
    """The script of a shell."""
    if question.shell not in SHELLS:
        raise unknown("shell called", question.shell, SHELLS)
    script = SCRIPTS[question.shell](all_offers(commands))
    return Completion(question.shell, script).came_from(question, listener.notes)


def bash_script(offers: Offers) -> str:
    return "\n".join(["# dscale completion for bash", *_tables(offers), _constant("bash.sh")])


def zsh_script(offers: Offers) -> str:
    """Flags are shown with what they are about."""
    told = {
        command: " ".join(f"'{flag.name}:{one_line(flag.about).replace(':', ' ')}'" for flag in flags)
        for command, flags in offers.flags.items()
    }
    cases = [f"'{command}') printf '%s\\n' {lines} ;;" for command, lines in told.items()]
    return "\n".join(["#compdef dscale", *_tables(offers), *_function("told", cases), _constant("zsh.sh")])


def _tables(offers: Offers) -> list[str]:
    """Functions of bash and zsh that print: the kind of a flag's value or of a place, the words of a kind, the flags
    of a command, the second words of a first one."""
    cases = by_kind(offers.flags)
    for kind, places in by_kind(offers.places).items():
        cases.setdefault(kind, []).extend(places)
    kinds = {"|".join(f"'{case}'" for case in several): kind for kind, several in cases.items()}
    flags = {f"'{name}'": " ".join(flag.name for flag in several) for name, several in offers.flags.items()}
    first = " ".join(dict.fromkeys([*(name.split()[0] for name in offers.flags), "help"]))
    return [
        f"_dscale_first='{first}'",
        *_function("kind", [f"{case}) echo {kind} ;;" for case, kind in kinds.items()]),
        *_function("words", [f"{kind}) echo '{' '.join(words)}' ;;" for kind, words in offers.lists.items()]),
        *_function("flags", [f"{name}) echo '{names}' ;;" for name, names in flags.items()]),
        *_function("next", [f"{family}) echo '{offers.seconds(family)}' ;;" for family in offers.families]),
    ]


def _function(name: str, cases: list[str]) -> list[str]:
    return [f"_dscale_{name}() {{", '  case "$1" in', *(f"    {case}" for case in cases), "  esac", "}"]


def fish_script(offers: Offers) -> str:
    """A line for each flag of each command."""
    lines = [_constant("head.fish").rstrip("\n")]
    lines += [f"set -g __dscale_{kind} {' '.join(words)}" for kind, words in offers.lists.items()]
    for name, about in offers.abouts.items():
        lines.append(f"complete -c dscale -n __fish_use_subcommand -a {name} -d '{one_line(about)}'")
    for family in offers.families:
        here = f"__dscale_at {family}; and test (count (commandline -opc)) -eq 2"
        lines.append(f"complete -c dscale -n '{here}' -a '{offers.seconds(family)}'")
    for command, flags in offers.flags.items():
        at = f"complete -c dscale -n '__dscale_at {command}'"
        lines += [f"{at} -l {flag.name[2:]}{_value(flag.kind)} -d '{one_line(flag.about)}'" for flag in flags]
        for kind in dict.fromkeys(place.kind for place in offers.places[command]):
            if kind not in (FREE, SWITCH):
                lines.append(at + (" -F" if kind == FILES else f" -a '$__dscale_{kind}'"))
                lines += [f"{at} -F"] if kind == "models" else []
    return "\n".join(lines) + "\n"


def _value(kind: str) -> str:
    """What follows a flag: nothing, anything, a path, a model's name or path, or one of the words of a list."""
    known = {SWITCH: "", FREE: " -x", FILES: " -r -F", "models": " -r -F -a '$__dscale_models'"}
    return known.get(kind, f" -x -a '$__dscale_{kind}'")


def _constant(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
