"""The plain launch comes first; what could be added to it brings what its flags bring."""

import shlex
from typing import Any

import pytest

import dragonscale as ds
from dragonscale.commands.serve.serve_records import ServeReport


def served(model: str, **flags: Any) -> ServeReport:
    """The answer to a question."""
    return ds.serve(model, **flags)


def asked_flags(text: str) -> dict[str, Any]:
    """The flags that a rung names, as the library takes them."""
    words = shlex.split(text.rpartition("(")[2].removesuffix(")"))
    name = words[0].removeprefix("--").replace("-", "_")
    if len(words) == 1:
        return {name: True}
    return {name: int(words[1]) if words[1].isdigit() else words[1]}


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("llama3-8b", {"on": "h100:1"}),
        ("deepseek-v3", {"on": "h200:8", "tpot": "30ms"}),
        ("deepseek-v3", {"on": "h200:16", "prompt": "8192", "output": "512"}),
    ],
    ids=["dense", "drafts", "pools"],
)
def test_a_rung_brings_what_its_flags_bring(model: str, flags: dict[str, str]) -> None:
    plain = served(model, **flags)
    assert plain.rungs
    for rung in plain.rungs:
        other = served(model, **flags, **asked_flags(rung.text))
        assert other.best is not None
        if rung.name == "disaggregation":
            assert other.disaggregation is not None
            assert other.disaggregation.gain == pytest.approx(1 + rung.gain)
        else:
            assert rung.gain == pytest.approx(plain.configs[0].paid / other.best.paid - 1)


def test_the_first_answer_is_the_plain_launch() -> None:
    plain = served("deepseek-v3", on="h200:16")
    first = plain.first()
    assert first.drafts == 0
    assert first.prefill is None
    assert first.dtypes["kv"] == "bf16"
    assert {rung.name for rung in plain.rungs} >= {"MTP", "disaggregation"}
    assert plain.needs == ""


def test_drafts_that_are_asked_for_are_in_the_first_answer() -> None:
    asked = served("deepseek-v3", on="h200:8", drafts=2)
    assert asked.first().drafts == 2
    assert "MTP" not in {rung.name for rung in asked.rungs}


def test_targets_that_only_drafts_meet_get_them_and_the_verdict_says_so() -> None:
    """A step of one sequence without drafts takes 9 ms there."""
    quick = served("deepseek-v3", on="h200:8", tpot="8ms")
    assert quick.best is not None
    assert quick.best.drafts > 0
    assert quick.verdict.startswith("Meets the targets only with MTP (--drafts ")
    assert served("deepseek-v3", on="h200:8", tpot="30ms").needs == ""
