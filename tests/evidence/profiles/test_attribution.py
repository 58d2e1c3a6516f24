"""What ops of profiles are: by the names that real kernels have, by scopes, by programs, by neighbours."""

import tomllib
from pathlib import Path

import pytest

from dragonscale.evidence.profiles import attribution
from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.names import kernel_rules, needed
from dragonscale.evidence.profiles.recording import OpText, Recorder

GOLDEN = tomllib.loads((Path(__file__).parent / "kernel_names.toml").read_text())


@pytest.mark.parametrize("software", GOLDEN)
def test_kernel_names(software: str) -> None:
    wrong = []
    for name, kind, section, phase in GOLDEN[software]["names"]:
        role = own_role(OpText(name))
        if (role.kind, role.section, role.phase) != (kind, section, phase):
            wrong.append(f"{name[:80]}: {role.kind}, {role.section}, {role.phase}; wanted {kind}, {section}, {phase}")
    assert not wrong, "\n".join(wrong)


def test_a_pattern_that_is_not_tried_would_not_have_matched() -> None:
    names = [row[0] for each in GOLDEN.values() for row in each["names"]]
    for pattern, _ in kernel_rules():
        words = needed(pattern.pattern)
        lost = [name for name in names if words and not any(word in name.lower() for word in words)]
        assert not [name for name in lost if pattern.search(name)], pattern.pattern


def test_of_very_many_ops_the_longest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribution, "MOST_OPS", 2)
    record = Recorder("a trace")
    stream = record.track(record.device("GPU", "gpu"), "stream 7", "ops")
    for number in range(4):
        record.event(stream, record.op(OpText(f"sgemm_{number}")), 100 * number, 10 + number)
    found, roles = attribution.attributed(record.made())
    assert [role.kind for role in roles[:4]] == ["", "", "matmul", "matmul"]
    assert found.notes[0].startswith("2 of the ops")
