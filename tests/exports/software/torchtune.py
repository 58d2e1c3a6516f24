"""torchtune's own check (`tune validate`) of the configs that are exported for it, and names of those that it ships."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.pop(0)  # this file has the package's name

import yaml


def _flat(table, lead=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{lead}{name}.")
        else:
            yield f"{lead}{name}"


def keys():
    """Names of all settings of the configs of its recipes, tables within them dotted."""
    table = {}
    for path in sorted((Path(find_spec("torchtune").origin).parent.parent / "recipes" / "configs").rglob("*.yaml")):
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "optimizer" in found:
            table |= {name: {} for name in _flat(found)}
    source = "torchtune 0.6.1 of the package index: the settings of the configs that come with its recipes"
    return {"software": "torchtune", "version": "0.6.1", "source": source, "keys": table}


def check(case):
    """None where `tune validate` takes a case; otherwise what it says."""
    from omegaconf import OmegaConf
    from torchtune.config import validate

    text = next(
        value for name, value in case["files"].items() if name.startswith("torchtune") and name.endswith(".yaml")
    )
    try:
        validate(OmegaConf.create(text))
    except Exception as error:  # whatever it raises is its answer
        return f"{type(error).__name__}: {error}"[-600:]
    return None


if __name__ == "__main__":
    answer = keys() if sys.argv[1] == "keys" else [check(case) for case in json.load(sys.stdin)]
    print("\x02" + json.dumps(answer))
