"""What is exported is imported again as the same plan, with the same numbers; and a name that the software lacks cannot be written."""

import functools
import tempfile
from pathlib import Path

import pytest

import dragonscale as ds
from dragonscale.exports.flags import flag_words
from dragonscale.exports.target import Target, of_kind
from tests.exports.plans import exports_of

SOFTWARE = [*of_kind("training"), *of_kind("serving")]


@functools.cache
def _exports(target: Target) -> list:
    with tempfile.TemporaryDirectory() as place:
        return [(path.name, made) for path, made in exports_of(target, Path(place))]


@pytest.mark.parametrize("target", SOFTWARE, ids=lambda one: one.name)
def test_an_export_is_imported_as_the_same_plan(target: Target, tmp_path: Path) -> None:
    made = _exports(target)
    assert len(made) >= 2
    for name, export in made:
        folder = tmp_path / name
        export.write_into(str(folder))
        back = ds.import_plan(str(folder))
        run = export.asked
        assert run is not None
        if not export.differences:
            assert back.plan == export.plan, (name, back.plan, export.plan)
        assert back.model == export.model
        assert back.slice == export.slice


@pytest.mark.parametrize("target", SOFTWARE, ids=lambda one: one.name)
def test_a_flag_that_the_software_lacks_cannot_be_written(target: Target) -> None:
    with pytest.raises(LookupError, match="no-such"):
        flag_words(target.key_table(), {"--no-such-flag": 1})
