"""Containers in the manifests of Kubernetes, with what the objects around them say: labels, chips, pods and copies."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.exports.launchers.cluster_chips import RESOURCES

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Contained:
    """A container's command as a script. `pods` are those that run it together, `copies` how many times, in an object
    of some `kind`."""

    name: str
    script: str
    names: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    chips: int = 0
    kind: str = ""
    pods: int = 1
    copies: int = 1


def is_own(table: Mapping[str, Any]) -> bool:
    """Whether a manifest is one that a target reads itself: Dynamo's, or pods that llm-d routes to."""
    return table.get("kind") == "DynamoGraphDeployment" or bool(marks(table.get("spec"), "llm-d.ai/role"))


def marks(value: Any, label: str) -> list[str]:
    """The values that a label has anywhere in a manifest: on objects, on the pods of their templates, in selectors."""
    found: list[str] = []
    inside = [value]
    while inside:
        one = inside.pop()
        if isinstance(one, Mapping):
            found += [str(one[label])] if isinstance(one.get(label), str) else []
            inside += one.values()
        elif isinstance(one, list):
            inside += one
    return found


def assigned(names: Mapping[str, Any]) -> list[str]:
    """Variables as lines of a shell script, their values quoted; what a shell has no name for is left out.

    >>> assigned({"MODEL": "my model", "a b": 1, "TP": 8})
    ["MODEL='my model'", 'TP=8']
    """
    named = {str(name): str(value) for name, value in names.items()}
    return [f"{name}={shlex.quote(value)}" for name, value in named.items() if _NAME.fullmatch(name)]


def pods_of(one: Contained) -> tuple[int, int]:
    """Pods of a group, and groups that work together (slices of one JobSet; replicas of an engine do not)."""
    return one.pods, one.copies if one.kind == "JobSet" else 1


def files_of(tables: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files of all ConfigMaps."""
    found: dict[str, str] = {}
    for table in tables:
        data = table.get("data")
        if table.get("kind") == "ConfigMap" and isinstance(data, Mapping):
            found |= {str(name): text for name, text in data.items() if isinstance(text, str)}
    return found


def containers(table: Mapping[str, Any]) -> list[Contained]:
    """The containers of a manifest that start something; of a leader and its workers the leader's."""
    kind, spec = str(table.get("kind", "")), _table(table.get("spec"))
    if kind == "JobSet":
        jobs = [_table(one) for one in _list(spec.get("replicatedJobs"))]
        specs = [(_table(_table(job.get("template")).get("spec")), _count(job.get("replicas"))) for job in jobs]
        return [container for body, copies in specs for container in _job(body, kind, copies)]
    if kind == "Job":
        return _job(spec, kind, 1)
    if kind == "LeaderWorkerSet":
        group = _table(spec.get("leaderWorkerTemplate"))
        size, copies = _count(group.get("size")), _count(spec.get("replicas"))
        pods = _table(group.get("leaderTemplate") or group.get("workerTemplate"))
        names = {"LWS_GROUP_SIZE": size}
        inside = pod_containers(_table(pods.get("spec")), kind)
        return [replace(one, names={**names, **one.names}, pods=size, copies=copies) for one in inside]
    if kind in ("PyTorchJob", "MPIJob", "JAXJob"):
        return _operator(spec, kind)
    if kind == "Pod":
        return list(pod_containers(spec, kind))
    pods = _table(_table(spec.get("template")).get("spec"))
    return [replace(one, copies=_count(spec.get("replicas"))) for one in pod_containers(pods, kind)]


def _job(spec: Mapping[str, Any], kind: str, copies: int) -> list[Contained]:
    pods = _table(_table(spec.get("template")).get("spec"))
    return [replace(one, pods=_count(spec.get("parallelism")), copies=copies) for one in pod_containers(pods, kind)]


def _operator(spec: Mapping[str, Any], kind: str) -> list[Contained]:
    """Kubeflow's jobs: roles with replicas, which all run one program."""
    roles = next((_table(value) for name, value in spec.items() if str(name).endswith("ReplicaSpecs")), {})
    total = sum(_count(_table(role).get("replicas")) for role in roles.values())
    pods = [_table(_table(_table(role).get("template")).get("spec")) for role in roles.values()]
    found = [one for spec in pods for one in pod_containers(spec, kind)]
    return [replace(one, pods=total) for one in found if one.chips][:1]


def pod_containers(spec: Mapping[str, Any], kind: str) -> Iterator[Contained]:
    """The containers of a pod that say what they start."""
    labels = {str(name): str(value) for name, value in _table(spec.get("nodeSelector")).items()}
    for one in map(_table, _list(spec.get("containers"))):
        script = script_of(one)
        if script:
            yield Contained(str(one.get("name", "")), script, _names(one), labels, chips_of(one), kind)


def chips_of(container: Mapping[str, Any]) -> int:
    """Chips that a container asks for."""
    resources = _table(container.get("resources"))
    for part in ("limits", "requests"):
        for name in RESOURCES:
            found = str(_table(resources.get(part)).get(name, ""))
            if found.isdecimal() and len(found) <= 6:
                return int(found)
    return 0


def script_of(container: Mapping[str, Any]) -> str:
    """What a container starts, as shell text; the image's own program where it names only arguments."""
    command, args = ([str(word) for word in _list(container.get(name))] for name in ("command", "args"))
    words = [*command, *args]
    for place in range(len(words) - 1):
        if re.fullmatch(r"-\w*c", words[place]) and words[0].rpartition("/")[2] in ("bash", "sh"):
            return _variables(words[place + 1])
    if command:
        return _variables(_joined(words))
    return _variables(_joined(["docker", "run", str(container.get("image", "")), *args])) if args else ""


def _joined(words: Sequence[str]) -> str:
    return " ".join(word if re.fullmatch(r"\$\(\w+\)", word) else shlex.quote(word) for word in words)


def _variables(text: str) -> str:
    """Kubernetes' own `$(NAME)` as a shell writes it, and its `$$` as the `$` that it stands for."""
    return re.sub(r"\$\$|'?\$\(([A-Z_][A-Z0-9_]*)\)'?", lambda found: f"${{{found[1]}}}" if found[1] else "$", text)


def _names(container: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for one in map(_table, _list(container.get("env"))):
        if isinstance(one.get("value"), str | int | float):
            found[str(one.get("name"))] = one["value"]
    return found


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1
