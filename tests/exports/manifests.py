"""Manifests and tasks held against the schemas of what reads them (`schemas/`), keys that are not named forbidden."""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

SCHEMAS = Path(__file__).parent / "schemas"


@functools.cache
def _schemas(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def manifests(text: str) -> list[dict[str, Any]]:
    """The documents of a file, each valid where its kind has a schema; a kind without one is an error."""
    found = [one for one in yaml.safe_load_all(text) if one]
    schemas = _schemas("kubernetes")
    for one in found:
        kind = schemas["kinds"][f"{one['apiVersion']}/{one['kind']}"]
        jsonschema.validate(one, {**kind, "definitions": schemas["definitions"]})
    return found


def sky_task(text: str) -> dict[str, Any]:
    """A SkyPilot task, valid with its resources and its service."""
    task, schemas = yaml.safe_load(text), _schemas("skypilot")
    jsonschema.validate(task, schemas["task"])
    jsonschema.validate(task["resources"], schemas["resources"])
    if "service" in task:
        jsonschema.validate(task["service"], schemas["service"])
    return task
