"""Questions: fields that are declared once, check what they are given and know how they are read."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from dragonscale.commands.questions import shared
from dragonscale.commands.questions.docstrings import docstrings
from dragonscale.commands.questions.facts import ChipsQuestion, ModelsQuestion
from dragonscale.commands.questions.flag import Duration, Length, Question, Text, Whole, fields_of
from dragonscale.commands.questions.operations import RooflineQuestion
from dragonscale.commands.questions.run import RunServeQuestion
from dragonscale.errors import InputError
from dragonscale.faces.cli.table import COMMANDS
from dragonscale.listener import Listener


class Shown(Question):
    """A question of this test."""

    place: Text = Text(value="PLACE")
    """Where it is."""
    long: Text = Length("32k", "TOKENS")
    wait: Text = Duration("", "TIME")
    many: Whole = Whole(3, "N")


def test_values_are_given_by_place_or_name_and_each_once() -> None:
    assert vars(Shown("here", many=4)) == {"place": "here", "long": "32k", "wait": "", "many": 4}
    for given, named in (((), {}), (("a",), {"place": "b"}), (("a",), {"plaice": "b"}), (("a", "b", "c", 1, 2), {})):
        with pytest.raises(TypeError):
            Shown(*given, **named)


def test_a_question_is_a_frozen_value() -> None:
    question = Shown("here")
    with pytest.raises(FrozenInstanceError):
        question.many = 5
    assert replace(question, many=5) == Shown("here", many=5) != question
    assert [field.name for field in fields(question)] == ["place", "long", "wait", "many"]
    assert pickle.loads(pickle.dumps(ModelsQuestion("llama3-8b", seq="32k"))).seq.tokens(Listener()) == 32768
    assert hash(copy.copy(question)) == hash(question)
    assert question != ChipsQuestion("here")
    assert repr(ChipsQuestion("v5e")) == "ChipsQuestion(name='v5e', source='', layout='', template=False)"


def test_amounts_are_read_by_their_field_and_refused_in_its_name() -> None:
    listener = Listener()
    order = RunServeQuestion("tp1", length="32k", grace="2min", log_every="")
    assert (order.length.tokens(listener), order.grace.read()) == (32768, 120.0)
    assert listener.notes == ["32k is read as 32,768 tokens."]
    assert order.log_every.read(math.inf) == math.inf
    with pytest.raises(InputError, match="--log-every"):
        order.log_every.read()
    with pytest.raises(InputError, match="--grace"):
        RunServeQuestion("tp1", grace="soon").grace.read()


def test_help_is_the_docstring_below_a_field_or_of_what_it_was_made_from() -> None:
    own = {field.name: field.about for field in fields_of(RooflineQuestion)}
    assert own["weights_only"].startswith("Count only the last operand's bytes")
    assert own["set"] == shared.SET.about == docstrings(shared.__name__)["SET"]
    chip = next(field for field in fields_of(RooflineQuestion) if field.name == "on")
    assert chip.about.startswith("A chip")
    assert chip.but(default="v5e").about == chip.about
    assert chip.but(about="Other.").about == "Other."


def test_every_function_of_the_library_is_a_command_or_more() -> None:
    import dragonscale as ds
    from dragonscale.faces.commands import FUNCTIONS

    assert set(FUNCTIONS) < set(ds.__all__)
    for name, row in FUNCTIONS.items():
        assert getattr(ds, name) is row.function
        assert getattr(ds, name).__doc__.startswith(row.details)
    assert all(
        row.about and row.page and row.examples[0].startswith(f"dscale {name}") for name, row in COMMANDS.items()
    )
