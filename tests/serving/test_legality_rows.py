"""Rows of what engines support are read as they are written."""

import msgspec
import pytest

from dragonscale.serving.engine.legality import EngineLegality, rules


def test_a_misspelt_field_is_refused() -> None:
    row = msgspec.to_builtins(rules("vllm"))
    assert msgspec.convert(row, EngineLegality) == rules("vllm")
    with pytest.raises(msgspec.ValidationError, match="expertt"):
        msgspec.convert(row | {"expertt": "world"}, EngineLegality)
