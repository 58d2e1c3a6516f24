"""What is offered where: commands, their flags, and the kind of value that follows each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragonscale.commands.questions.flag import Field
from dragonscale.course.chapters import CHAPTERS
from dragonscale.exports.target import TARGETS
from dragonscale.faces.command import Command
from dragonscale.faces.commands import FAMILIES
from dragonscale.models import model_names
from dragonscale.physics.hardware import chip_names
from dragonscale.physics.hardware.chip import DTYPE_BYTES
from dragonscale.serving.engine.engine import engines
from dragonscale.training.plan.stack import stacks

SWITCH, FREE, FILES = "switch", "free", "files"
"""Kinds that are no list: a flag without a value, a value nobody can guess, a path."""


@dataclass(frozen=True)
class Offered:
    """A flag, or a place in the line (0 for the first); `kind` names what may follow."""

    name: str
    about: str
    kind: str


@dataclass(frozen=True)
class Offers:
    """Everything a script needs: first words with what they are about, flags and places by command, and the lists of
    words by kind."""

    abouts: dict[str, str]
    flags: dict[str, tuple[Offered, ...]]
    places: dict[str, tuple[Offered, ...]]
    lists: dict[str, tuple[str, ...]]

    @property
    def families(self) -> tuple[str, ...]:
        """First words of commands of two."""
        return tuple(dict.fromkeys(name.split()[0] for name in self.flags if " " in name))

    def seconds(self, family: str) -> str:
        """The second words of a first one."""
        return " ".join(name.split()[1] for name in self.flags if name.startswith(f"{family} "))


def all_offers(commands: Mapping[str, Command[Any, Any]]) -> Offers:
    """Read off the table of commands."""
    lists, ending = known_lists(), Offered("--help", "Flags and examples.", SWITCH)
    abouts, flags, places = {}, {}, {}
    for name, command in commands.items():
        first, given = name.split()[0], [field for field in command.fields() if field.place]
        abouts[first] = command.about if first == name else FAMILIES[first]
        named = [field for field in command.fields() if not field.place]
        flags[name] = (*(Offered(field.flag, field.about, _kind(field, lists)) for field in named), ending)
        places[name] = tuple(Offered(str(at), field.about, _kind(field, lists)) for at, field in enumerate(given))
    return Offers(abouts, flags, places, lists)


def known_lists() -> dict[str, tuple[str, ...]]:
    """The named lists that fields offer."""
    return {
        "models": tuple(model_names()),
        "slices": tuple(chip_names()),
        "stacks": ("auto", *stacks()),
        "engines": ("auto", *engines()),
        "targets": tuple(TARGETS),
        "dtypes": tuple(DTYPE_BYTES),
        "lessons": tuple(one.slug for one in CHAPTERS),
    }


def _kind(field: Field[Any, Any], lists: dict[str, tuple[str, ...]]) -> str:
    """The kind of a field's value; words of its own become a list of their own."""
    if field.switch:
        return SWITCH
    if isinstance(field.offers, str):
        return field.offers if field.offers in lists else FILES if field.offers == "files" else FREE
    if not field.offers:
        return FREE
    for name, words in lists.items():
        if words == tuple(field.offers):
            return name
    name = f"words{len(lists)}"
    lists[name] = tuple(field.offers)
    return name


def one_line(about: str, most: int = 70) -> str:
    """The first sentence of what a flag is about, with nothing in it that a shell would read.

    >>> one_line("Tokens of a step (4M), or `sequences`; $5. More.")
    'Tokens of a step (4M), or sequences; 5'
    """
    text = about.partition(". ")[0].rstrip(".")
    plain = "".join(one for one in text if one not in "'\"`$\\\\[]{}")
    return plain if len(plain) <= most else plain[: most - 1].rsplit(" ", 1)[0] + " …"


def by_kind(offered: dict[str, tuple[Offered, ...]]) -> dict[str, list[str]]:
    """`command flag` pairs by kind, as the cases of a script; those of free values are left out."""
    cases: dict[str, list[str]] = {}
    for command, several in offered.items():
        for offer in several:
            if offer.kind != FREE:
                cases.setdefault(offer.kind, []).append(f"{command} {offer.name}")
    return cases
