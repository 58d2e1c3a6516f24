"""Each software's own parser takes what is exported for it, and has the names that the tables hold (slow: they are
installed here)."""

import json

import msgspec
import pytest

from dragonscale.exports.keys import key_file, load_keys
from tests.exports.plans import cases_for
from tools.software import run, specs


@pytest.mark.slow
@pytest.mark.parametrize("name", specs())
def test_the_software_itself_takes_every_export(name: str) -> None:
    cases = cases_for(name)
    assert cases
    verdicts = run(name, "check", cases)
    assert {case["name"]: verdict for case, verdict in zip(cases, verdicts, strict=True) if verdict is not None} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", specs())
def test_the_table_of_names_is_that_of_the_software(name: str) -> None:
    table = load_keys(name)
    assert json.loads(key_file(msgspec.convert(run(name, "keys"), type(table)))) == json.loads(key_file(table))
