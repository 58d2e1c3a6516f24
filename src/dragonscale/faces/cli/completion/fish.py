"""The script for fish: a line for each flag of each command."""

from dragonscale.faces.cli.commands import COMMANDS
from dragonscale.faces.cli.completion.offers import FILES, FREE, SWITCH, Offers, one_line
from dragonscale.faces.cli.help import FAMILIES

_HEAD = """# dscale completion for fish
function __dscale_at
    set -l words (commandline -opc)
    set -e words[1]
    test (count $words) -ge (count $argv); or return 1
    test "$words[1..(count $argv)]" = "$argv"
end
complete -c dscale -f"""


def fish_script(offers: Offers) -> str:
    """The whole script."""
    lines = [_HEAD]
    lines += [f"set -g __dscale_{kind} {' '.join(words)}" for kind, words in offers.lists.items()]
    for name in dict.fromkeys(command.split()[0] for command in offers.flags):
        about = COMMANDS[name].about if name in COMMANDS else FAMILIES.get(name, "")
        lines.append(f"complete -c dscale -n __fish_use_subcommand -a {name} -d '{one_line(about)}'")
    for family in offers.families:
        seconds = " ".join(name.split()[1] for name in offers.flags if name.startswith(f"{family} "))
        lines.append(
            f"complete -c dscale -n '__dscale_at {family}; and test (count (commandline -opc)) -eq 2' -a '{seconds}'"
        )
    for command, flags in offers.flags.items():
        at = f"complete -c dscale -n '__dscale_at {command}'"
        for one in flags:
            lines.append(f"{at} -l {one.name[2:]}{_value(one.kind)} -d '{one_line(one.about)}'")
        for kind in dict.fromkeys(one.kind for one in offers.places[command]):
            if kind not in (FREE, SWITCH):
                lines.append(at + (" -F" if kind == FILES else f" -a '$__dscale_{kind}'"))
                lines += [f"{at} -F"] if kind == "models" else []
    return "\n".join(lines) + "\n"


def _value(kind: str) -> str:
    """What follows a flag: nothing, anything, a path, or one of the words of a list."""
    if kind == SWITCH:
        return ""
    if kind == FREE:
        return " -x"
    return (
        " -r -F"
        if kind == FILES
        else f" -r -F -a '$__dscale_{kind}'"
        if kind == "models"
        else f" -x -a '$__dscale_{kind}'"
    )
