"""The part of the scripts that bash and zsh share: tables as functions of `case`."""

from collections.abc import Iterable

from dragonscale.faces.cli.completion.offers import Offers, by_kind


def tables(offers: Offers) -> list[str]:
    """Functions that print: the kind of a flag's value or of a place, the words of a kind, the flags of a command."""
    kinds = {**{kind: list(cases) for kind, cases in by_kind(offers.flags).items()}}
    for kind, cases in by_kind(offers.places).items():
        kinds.setdefault(kind, []).extend(cases)
    lines = ["_dscale_kind() {", '  case "$1" in']
    for kind, cases in kinds.items():
        lines.append(f"    {_either(cases)}) echo {kind} ;;")
    lines += ["  esac", "}", "_dscale_words() {", '  case "$1" in']
    lines += [f"    {kind}) echo '{' '.join(words)}' ;;" for kind, words in offers.lists.items()]
    lines += ["  esac", "}", "_dscale_flags() {", '  case "$1" in']
    for command, flags in offers.flags.items():
        lines.append(f"    '{command}') echo '{' '.join(one.name for one in flags)}' ;;")
    lines += ["  esac", "}", "_dscale_next() {", '  case "$1" in']
    for family in offers.families:
        seconds = [name.split()[1] for name in offers.flags if name.startswith(f"{family} ")]
        lines.append(f"    {family}) echo '{' '.join(seconds)}' ;;")
    return [*lines, "  esac", "}"]


def first_words(offers: Offers) -> str:
    return " ".join(dict.fromkeys([*(name.split()[0] for name in offers.flags), "help"]))


def _either(cases: Iterable[str]) -> str:
    return "|".join(f"'{case}'" for case in cases)
