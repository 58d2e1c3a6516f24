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


@functools.cache
def _validator(name: str, kind: str) -> Any:
    """What checks a kind; the schema itself is checked once, which takes a second."""
    schemas = _schemas(name)
    own = schemas["kinds"][kind] if "kinds" in schemas else schemas[kind]
    schema = {**own, "definitions": schemas["definitions"]} if "definitions" in schemas else own
    found = jsonschema.validators.validator_for(schema)
    found.check_schema(schema)
    return found(schema)


def manifests(text: str) -> list[dict[str, Any]]:
    """The documents of a file, each valid where its kind has a schema; a kind without one is an error."""
    found = [one for one in yaml.safe_load_all(text) if one]
    for one in found:
        _validator("kubernetes", f"{one['apiVersion']}/{one['kind']}").validate(one)
    return found


def sky_task(text: str) -> dict[str, Any]:
    """A SkyPilot task, valid with its resources and its service."""
    task = yaml.safe_load(text)
    _validator("skypilot", "task").validate(task)
    _validator("skypilot", "resources").validate(task["resources"])
    if "service" in task:
        _validator("skypilot", "service").validate(task["service"])
    return task
