"""The command inside what launches it: the containers of a Kubernetes file, the `run` of a SkyPilot task, a batch
script.

Around a command a launcher says things that a plan needs: which chips, how many of them, how many replicas. They are
handed over with the command (`Source.launch`), and count more than the comment of an export, so that an edited manifest
is read as it stands. Config files in a ConfigMap are found as if they lay beside the command. Of pools of workers that
manifests start the first is the plan's, and a second one prefills for it (`pools_read`).

>>> task = (
...     "resources: {accelerators: 'H100:8'}\\nnum_nodes: 2\\nrun: |\\n  vllm serve m -tp 8 -pp $SKYPILOT_NUM_NODES\\n"
... )
>>> found = unwrapped(Source(task))
>>> found.launch, found.command("vllm").words[-2:]
({'slice': 'h100:16'}, ['-pp', '2'])
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dragonscale.errors import InputError
from dragonscale.exports.imported import Given, Imported, Source
from dragonscale.exports.keys import table_at
from dragonscale.exports.launchers.launch_parts import RESOURCES, chip_called
from dragonscale.exports.runs import read_kept
from dragonscale.exports.shell import batch_flags, words_of
from dragonscale.exports.terms import load_terms
from dragonscale.physics.hardware import load_chip, parse_slice, parse_target
from dragonscale.physics.hardware.catalogue import is_chip
from dragonscale.serving.engine.plan_file import SavedPlan, SavedPrefill, read_serving_plan

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
    if isinstance(value, list):
        return [mark for one in value for mark in marks(one, label)]
    if not isinstance(value, Mapping):
        return []
    own = [value[label]] if isinstance(value.get(label), str) else []
    return [*own, *(mark for one in value.values() for mark in marks(one, label))]


def assigned(names: Mapping[str, Any]) -> list[str]:
    """Variables as lines of a shell script, their values quoted; what a shell has no name for is left out.

    >>> assigned({"MODEL": "my model", "a b": 1, "TP": 8})
    ["MODEL='my model'", 'TP=8']
    """
    named = {str(name): str(value) for name, value in names.items()}
    return [f"{name}={shlex.quote(value)}" for name, value in named.items() if _NAME.fullmatch(name)]


def files_of(tables: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files of all ConfigMaps."""
    maps = [table_at(table, "data") for table in tables if table.get("kind") == "ConfigMap"]
    return {str(name): text for data in maps for name, text in data.items() if isinstance(text, str)}


def _composed(services: Mapping[str, Any]) -> Iterator[Contained]:
    """The services of `docker compose`, whose words are a list or the text of a shell."""
    for name, service in services.items():
        own, parts = table_at(service), {"command": "entrypoint", "args": "command"}
        said = {part: own.get(theirs, []) for part, theirs in parts.items()}
        words = {part: words_of(value) if isinstance(value, str) else value for part, value in said.items()}
        env = {str(one).partition("=")[0]: str(one).partition("=")[2] for one in _list(own, "environment")}
        env |= {str(key): value for key, value in table_at(own, "environment").items() if value is not None}
        devices = _rows(table_at(own, "deploy", "resources", "reservations"), "devices")
        chips = sum(count_of(one.get("count") or len(_list(one, "device_ids"))) for one in devices)
        if script := script_of({"image": own.get("image"), **words}):
            yield Contained(str(name), script, env, {}, chips, "Pod")


def containers(table: Mapping[str, Any]) -> list[Contained]:
    """The containers of a manifest that start something; of a leader and its workers the leader's."""
    if "services" in table:
        return list(_composed(table_at(table, "services")))
    kind, spec = str(table.get("kind", "")), table_at(table, "spec")
    if kind == "JobSet":
        jobs = _rows(spec, "replicatedJobs")
        found = [_job(table_at(job, "template", "spec"), kind, count_of(job.get("replicas"))) for job in jobs]
        return [container for inside in found for container in inside]
    if kind == "Job":
        return _job(spec, kind, 1)
    if kind == "LeaderWorkerSet":
        group = table_at(spec, "leaderWorkerTemplate")
        size, copies = count_of(group.get("size")), count_of(spec.get("replicas"))
        pods = table_at(group, "leaderTemplate") or table_at(group, "workerTemplate")
        inside = pod_containers(table_at(pods, "spec"), kind)
        return [replace(one, names={"LWS_GROUP_SIZE": size, **one.names}, pods=size, copies=copies) for one in inside]
    if kind in ("PyTorchJob", "MPIJob", "JAXJob"):
        return _operator(spec, kind)
    if kind == "Pod":
        return list(pod_containers(spec, kind))
    pods = table_at(spec, "template", "spec") or table_at(spec, "predictor")  # KServe's InferenceService
    return [replace(one, copies=count_of(spec.get("replicas"))) for one in pod_containers(pods, kind)]


def _job(spec: Mapping[str, Any], kind: str, copies: int) -> list[Contained]:
    pods = table_at(spec, "template", "spec")
    return [replace(one, pods=count_of(spec.get("parallelism")), copies=copies) for one in pod_containers(pods, kind)]


def _operator(spec: Mapping[str, Any], kind: str) -> list[Contained]:
    """Kubeflow's jobs: roles with replicas, which all run one program."""
    roles = next((table_at(value) for name, value in spec.items() if str(name).endswith("ReplicaSpecs")), {}).values()
    total = sum(count_of(table_at(role).get("replicas")) for role in roles)
    found = [one for role in roles for one in pod_containers(table_at(role, "template", "spec"), kind)]
    return [replace(one, pods=total) for one in found if one.chips][:1]


def pod_containers(spec: Mapping[str, Any], kind: str) -> Iterator[Contained]:
    """The containers of a pod that say what they start."""
    labels = {str(name): str(value) for name, value in table_at(spec, "nodeSelector").items()}
    for one in _rows(spec, "containers"):
        script = script_of(one)
        if script:
            yield Contained(str(one.get("name", "")), script, _names(one), labels, chips_of(one), kind)


def chips_of(container: Mapping[str, Any]) -> int:
    """Chips that a container asks for."""
    asked = [table_at(container, "resources", part) for part in ("limits", "requests")]
    said = [str(part.get(name, "")) for part in asked for name in RESOURCES]
    return next((int(text) for text in said if text.isdecimal() and len(text) <= 6), 0)


def script_of(container: Mapping[str, Any]) -> str:
    """What a container starts, as shell text; the image's own program where it names only arguments."""
    command, args = ([str(word) for word in _list(container, name)] for name in ("command", "args"))
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
    said = [(str(one.get("name")), one.get("value")) for one in _rows(container, "env")]
    return {name: value for name, value in said if isinstance(value, str | int | float)}


def _list(table: Mapping[str, Any], name: str) -> list[Any]:
    value = table.get(name)
    return value if isinstance(value, list) else []


def _rows(table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [table_at(row) for row in _list(table, name)]


def count_of(value: Any) -> int:
    """A number of copies or hosts; 1 where none is said."""
    return value if isinstance(value, int) and value > 0 else 1


TERMS = load_terms("launchers")


def unwrapped(source: Source) -> Source:
    """The text of the commands that a launcher's file starts; anything else as it is."""
    if re.search(r"^#SBATCH\s", source.text, re.MULTILINE):
        return replace(source, launch=_batch(source))
    tables = source.tables
    if any({"apiVersion", "kind"} <= {*table} or "services" in table for table in tables):
        return source if any(map(is_own, tables)) else _manifests(source)
    if tables and isinstance(tables[0].get("run"), str) and ("resources" in tables[0] or "num_nodes" in tables[0]):
        return _task(source, tables[0])
    return source


def _batch(source: Source) -> dict[str, Any]:
    """The chips of a batch script that names them: `--gpus-per-node=h100:8`, `--gres=gpu:h100:8`,
    `--constraint=h100`."""
    flags = batch_flags(source.text)
    each = flags.get("gpus-per-node") or flags.get("gres", "").removeprefix("gpu:") or flags.get("gpus-per-task", "")
    name, _, count = each.rpartition(":")
    chip = _sites_chip(name) or _sites_chip(flags.get("constraint", ""))
    nodes = flags.get("nodes", "1").partition("-")[0]
    if not count.isdecimal() or not nodes.isdecimal():
        return {}
    return _slice(source, chip, int(count) * int(nodes)) if chip else {}


def _sites_chip(word: str) -> str:
    """A word of a cluster's own is a chip's name before it is what a cloud calls another (SkyPilot's A100: 40 GB)."""
    return load_chip(word.lower()).name if is_chip(word.lower()) else chip_called(word)


def _task(source: Source, task: Mapping[str, Any]) -> Source:
    name, count = _accelerators(table_at(task, "resources").get("accelerators"))
    asked = task.get("num_nodes")
    nodes = asked if isinstance(asked, int) else 1
    names: dict[str, Any] = {"SKYPILOT_NUM_NODES": nodes}
    names |= {"SKYPILOT_NUM_GPUS_PER_NODE": count} if count else {}
    if not count and "SKYPILOT_NUM_GPUS_PER_NODE" in str(task["run"]):
        said = "a choice of how many accelerators a node has, and its command takes as many"
        raise InputError(f"{source.shown} leaves {said}: put one under resources.accelerators, such as H100:8.")
    names |= {str(name): value for name, value in table_at(task, "envs").items() if value is not None}
    launch: dict[str, Any] = {}
    if name.startswith("tpu-"):
        launch = _tpus(source, name.removeprefix("tpu-"), nodes)
    elif chip := chip_called(name):
        launch = _slice(source, chip, count * nodes)
    service = table_at(task, "service")
    replicas = service.get("replicas") or table_at(service, "replica_policy").get("min_replicas")
    if replicas and isinstance(replicas, int):
        launch["replicas"] = replicas
    return replace(source, text=told(source, names, str(task["run"])), launch=launch)


def _accelerators(said: Any) -> tuple[str, int]:
    """One accelerator and how many; of a choice of several how many, where each is as many.

    >>> _accelerators("H100:8"), _accelerators({"H200:8": None, "H100": 8}), _accelerators(["A100:4", "A100-80GB:8"])
    (('H100', 8), ('', 8), ('', 0))
    """
    pairs = said.items() if isinstance(said, Mapping) else []
    choices = [f"{name}:{count}" if isinstance(count, int) else str(name) for name, count in pairs]
    choices = choices or (said.strip("{} ").split(",") if isinstance(said, str) else _list({"": said}, ""))
    found = [(name.strip(), count.strip()) for name, _, count in (str(one).partition(":") for one in choices)]
    counts = {int(count) if count.isdecimal() and len(count) <= 6 else 1 for _, count in found}
    names = {name for name, _ in found}
    return next(iter(names)) if len(names) == 1 else "", next(iter(counts)) if len(counts) == 1 else 0


def told(source: Source, names: Mapping[str, Any], script: str) -> str:
    """A script after the comments of the file it was in and the variables that are set for it."""
    comments = [line for line in source.text.splitlines() if line.startswith("#")]
    return "\n".join([*comments, *assigned(names), script]) + "\n"


def _manifests(source: Source) -> Source:
    """The first program of the manifests that has chips (or any), with what they say of its pods; others follow it."""
    found = [one for table in source.tables for one in containers(table)]
    if not found:
        return source
    found.sort(key=lambda one: (not one.chips, "prefill" in one.name))
    first = found[0]
    script = "\n".join(told(source if one is first else Source(""), one.names, one.script) for one in found)
    return replace(source, text=script, files=files_of(source.tables), launch=_pods(source, first))


def labelled(source: Source, labels: Mapping[str, str], chips: int, jobs: int = 1) -> dict[str, Any]:
    """The slice that the labels of nodes say, where `chips` is how many a copy has."""
    if tpu := chip_called(labels.get("cloud.google.com/gke-tpu-accelerator", "")):
        shape = labels.get("cloud.google.com/gke-tpu-topology", "")
        return _tpus(source, f"{tpu}:{shape}", jobs) if shape else {}
    chip = next(filter(None, (chip_called(labels.get(name, "")) for name in _LABELS)), "")
    return _slice(source, chip, chips) if chip and chips else {}


def _pods(source: Source, one: Contained) -> dict[str, Any]:
    """What manifests say of a program's chips and replicas."""
    together = one.kind == "JobSet" or (one.kind == "StatefulSet" and "--nnodes" in one.script)
    jobs = one.copies if together else 1  # slices and hosts of one program work together; replicas of an engine do not
    launch = labelled(source, one.labels, one.chips * one.pods * jobs, jobs)
    if one.kind in ("Deployment", "StatefulSet", "LeaderWorkerSet") and not together:
        launch["replicas"] = one.copies
    tpus = "cloud.google.com/gke-tpu-accelerator" in one.labels
    if one.pods > 1 and one.kind == "LeaderWorkerSet" and 0 < one.chips < 8 and not tpus:
        launch["pods"] = (one.pods, one.chips)
    if launch.get("replicas", 2) <= 1 and not source.kept.get("replicas"):
        del launch["replicas"]
    return launch


_LABELS = TERMS.lists["node_labels"]


def _slice(source: Source, chip: str, chips: int) -> dict[str, Any]:
    """GPUs as a slice; the header's own words where they say the same chips (it may name changes of a chip)."""
    kept = str(read_kept(source.text).get("slice", ""))
    if kept and (same := _parsed(kept)) is not None and same.chips == chips and chip_called(same.chip.name) == chip:
        return {}
    found = _parsed(f"{chip}:{chips}")
    return {"slice": str(found)} if found is not None else {}


def _tpus(source: Source, text: str, pods: int) -> dict[str, Any]:
    found = _parsed(text + (f"*{pods}" if pods > 1 else ""))
    if found is None:
        return {}
    same = _parsed(str(read_kept(source.text).get("slice", "")))
    # a topology is written in rising order, whatever the plan's own
    if same is not None and same.chips == found.chips and sorted(same.shape) == sorted(found.shape):
        return {}
    return {"slice": str(found)}


def _parsed(text: str) -> Any:
    try:
        return parse_slice(text) if text else None
    except InputError:
        return None


Pool = tuple[str, Mapping[str, str], int, int]
"""A command, the labels of its nodes, the chips of one copy, and how many copies there are."""


def pools_read(
    source: Source, given: Given, pools: Sequence[Pool], read: Callable[[Source, Given], Imported]
) -> Imported:
    """The plan of the first pool, with the other as the one that prefills."""
    command, labels, chips, copies = pools[0]
    launch = labelled(source, labels, chips)
    if copies > 1 or source.kept.get("replicas"):
        launch["replicas"] = copies
    back = read(replace(source, text=told(source, {}, command), launch=launch), given)
    if len(pools) < 2 or not isinstance(back.file, SavedPlan):
        return back
    pool = _prefill(source, given, pools[1], read, back.file)
    notes = tuple(note for note in back.notes if "half of a pair" not in note)  # here is the other one
    return replace(back, file=replace(back.file, prefill=pool), notes=notes)


def _prefill(
    source: Source, given: Given, pool: Pool, read: Callable[[Source, Given], Imported], main: SavedPlan
) -> SavedPrefill:
    command, labels, chips, copies = pool
    said = source.kept.get("prefill", {})
    piece = str(labelled(Source(""), labels, chips).get("slice", "")) or _same_chip(main.slice, chips)
    kept = str(said.get("slice", ""))
    where = kept if kept and kept.rpartition(":")[2] == piece.rpartition(":")[2] else piece
    alone = Source(command + "\n", source.path, source.files)
    file = read(alone, Given(given.model or main.model, where or given.slice)).file
    plan, engine = file.plan, file.engine if isinstance(file, SavedPlan) else ""
    text = str(said.get("plan", ""))
    same = bool(text) and read_serving_plan(text).plan == plan
    other = engine if engine != main.engine.partition(",")[0] else ""
    return SavedPrefill(where, text if same else str(plan), copies, other)


def _same_chip(piece: str, chips: int) -> str:
    """So many chips of the kind that the other pool has."""
    return f"{parse_target(piece)[0].name}:{chips}" if piece and chips else ""
