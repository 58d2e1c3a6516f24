"""The pages of reference say what the code says, of every public name."""

import pytest

import dragonscale
from dragonscale.faces.cli.table import COMMANDS
from tools.reference_cli import undescribed
from tools.reference_python import answers, undocumented
from tools.write_reference import DIRECTORY, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_reference_is_current(name: str) -> None:
    assert (DIRECTORY / name).read_text() == PAGES[name](), "run `make docs`"


def test_every_public_name_has_a_docstring() -> None:
    assert undocumented() == []


def test_every_flag_has_a_description() -> None:
    assert undescribed() == []


def test_every_public_name_is_in_the_reference() -> None:
    page = (DIRECTORY / "reference-python.md").read_text()
    wanted = [*vars(dragonscale)["__all__"], *(kind.__name__ for kind in answers())]
    assert [name for name in wanted if f"\n### {name}\n" not in page] == []


def test_every_command_and_flag_is_in_the_reference() -> None:
    page = (DIRECTORY / "reference-cli.md").read_text()
    for command in COMMANDS.values():
        section = page.partition(f"\n## dscale {command.name}\n")[2].partition("\n## ")[0]
        assert [field.flag for field in command.fields() if not field.place and f"`{field.flag}`" not in section] == []
        assert all(example in section for example in command.examples)
