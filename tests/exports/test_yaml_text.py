"""Whatever text a table holds, YAML reads it back as it was."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dragonscale.exports.written import yaml_text

SIGNS = "ab $#:-|'\"\\{}[]&*!%@`,\n\n\t\r\x07\x7f\x85\xa0\u2028\ufeffé😀.5"
TEXT = st.text(alphabet=st.sampled_from(SIGNS), max_size=12)


@settings(max_examples=300, deadline=None)
@given(TEXT, TEXT)
def test_text_comes_back(first: str, second: str) -> None:
    table: dict[str, Any] = {
        "a": first,
        "b": [first, second],
        "c": [{"d": second, "e": [first] * 9}],
        "f": {second: first},
    }
    assert yaml.safe_load(yaml_text(table)) == table


@pytest.mark.parametrize(
    "text", [".5", ".inf", ".nan", "..", "./a", "1e5", "no", "a\nb", "a\nb\n", "a\n\n", " a\nb", "\na"]
)
def test_text_that_looks_like_something_else_comes_back(text: str) -> None:
    assert yaml.safe_load(yaml_text({"a": text, "b": [text]})) == {"a": text, "b": [text]}
