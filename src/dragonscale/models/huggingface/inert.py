"""Fields of a `config.json` that change neither parameters, FLOPs nor the cache, in any family: the lists of
`inert.toml`."""

import tomllib
from pathlib import Path
from typing import Any

_LISTS = tomllib.loads(Path(__file__).with_name("inert.toml").read_text(encoding="utf-8"))
INERT_WHILE_OFF = frozenset(_LISTS.pop("while_off").split())
NEMOTRON_FIELDS = _LISTS.pop("nemotron_h").split()
INERT = frozenset(" ".join(_LISTS.values()).split())


def is_inert(name: str, value: Any) -> bool:
    """Whether a field that no reader asked for can be passed over.

    >>> is_inert("rope_theta", 10000.0), is_inert("attention_bias", False), is_inert("attention_bias", True)
    (True, True, False)
    """
    return name in INERT or name.startswith("_") or (name in INERT_WHILE_OFF and not value)
