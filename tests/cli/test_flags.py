"""A flag means the same in every command that has it."""

from collections import defaultdict
from typing import Any

from dragonscale.commands.questions.flag import Field, Real, Switch, Whole
from dragonscale.faces.cli.arguments import read_arguments
from dragonscale.faces.cli.table import COMMANDS


def meaning(field: Field[Any, Any]) -> tuple[str, str]:
    """What a flag says and what it takes, as it was first declared: a command may only narrow the words (`but`)."""
    while field.origin is not None:
        field = field.origin
    kind = next((kind.__name__ for kind in (Switch, Whole, Real) if isinstance(field, kind)), "text")
    return field.about, kind


def test_a_flag_has_one_meaning() -> None:
    meanings: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in COMMANDS.items():
        for field in command.fields():
            for spelling in field.spellings if not field.place else ():
                meanings[spelling][meaning(field)].append(name)
    several = {flag: dict(found) for flag, found in meanings.items() if len(found) > 1}
    assert not several, f"{several}: derive both from one field of questions/shared.py, or give one another name"


def test_a_second_meaning_is_seen() -> None:
    profile = next(field for field in COMMANDS["train"].fields() if field.name == "profile")
    assert meaning(profile.but(value="X")) == meaning(profile)
    assert meaning(Whole(None, "N").named("profile")) != meaning(profile)


def test_a_flag_may_be_given_several_times_where_it_takes_a_list() -> None:
    arguments = ["llama3-8b", "--on", "h100:8", "--on", "v5p:2x2x1", "--batch", "64seq"]
    assert read_arguments(COMMANDS["train"].fields(), arguments, "train").values["on"] == "h100:8,v5p:2x2x1"
