"""The arithmetic of a model by its name, whatever kind of file it comes from."""

from pathlib import Path

from dragonscale.errors import InputError, shorten
from dragonscale.runtime.numerics import Numerics, config_of, read_numerics
from dragonscale.tables import read_table


def numerics_of(name: str) -> Numerics:
    """Of a preset, a `config.json`, or a TOML file with the fields of one; a file of the book's letters is a LLaMA."""
    if Path(name).suffix.lower() != ".toml":
        return read_numerics(config_of(name))
    table = read_table(Path(name), "Model file")
    if "base" in table:
        raise InputError(
            f"The model {shorten(name)} is written as changes of {shorten(table['base'])}, which cannot be run yet; write "
            "its fields out."
        )
    return read_numerics(table)
