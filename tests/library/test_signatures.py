"""Functions as editors and Python know them: types, required parameters, refusals in Python's words, seconds."""

import inspect
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.errors import InputError
from dragonscale.faces.commands import FUNCTIONS
from dragonscale.models import Transformer
from dragonscale.physics.hardware import Slice

JOB: dict[str, Any] = {"model": "llama3-8b", "on": "h100:8"}


@pytest.mark.parametrize("name", [*FUNCTIONS, "compare"])
def test_every_parameter_has_its_type(name: str) -> None:
    signed = inspect.signature(getattr(ds, name))
    assert signed.return_annotation is not inspect.Signature.empty
    for parameter in signed.parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            assert parameter.annotation is not Any, parameter


def test_what_must_be_given_has_no_default() -> None:
    signed = inspect.signature(ds.train).parameters
    bare = [name for name, one in signed.items() if one.default is inspect.Parameter.empty]
    assert bare == ["model", "on"]
    assert signed["lora_rank"].annotation == int | None
    assert signed["alone"].annotation is bool
    assert "'cost'" in str(signed["rank"])
    assert Transformer in signed["model"].annotation.__args__
    assert Slice in signed["on"].annotation.__args__
    assert ds.train.__annotations__["top"] is int


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: ds.train("llama3-8b"), "Give on=, the slice"),
        (lambda: ds.serve(**JOB, ttft="5"), "ttft= is '5', which has no unit"),
        (lambda: ds.compare("fsdp8", "tp8", **JOB, batch="4M", seq="x"), "seq="),
        (lambda: ds.explain("train", "tp8", "llama3-8b", "h100:8", solve="nothing"), "solve"),
    ],
)
def test_refusals_speak_python(ask: Any, said: str) -> None:
    with pytest.raises(InputError) as told:
        ask()
    assert said in str(told.value)
    assert "--" not in str(told.value)


def test_numbers_of_times_are_seconds() -> None:
    number, text = (ds.serve(**JOB, batch=8, tpot=value) for value in (0.03, "30ms"))
    assert number.configs == text.configs
