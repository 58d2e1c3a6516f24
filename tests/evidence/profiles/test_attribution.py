"""What ops of profiles are: by the names that real kernels have, by scopes, by programs, by neighbours."""

import tomllib
from pathlib import Path

import pytest

from dragonscale.evidence.profiles.attribution import own_role
from dragonscale.evidence.profiles.recording import OpText

GOLDEN = tomllib.loads((Path(__file__).parent / "kernel_names.toml").read_text())


@pytest.mark.parametrize("software", GOLDEN)
def test_kernel_names(software: str) -> None:
    wrong = []
    for name, kind, section, phase in GOLDEN[software]["names"]:
        role = own_role(OpText(name))
        if (role.kind, role.section, role.phase) != (kind, section, phase):
            wrong.append(f"{name[:80]}: {role.kind}, {role.section}, {role.phase}; wanted {kind}, {section}, {phase}")
    assert not wrong, "\n".join(wrong)
