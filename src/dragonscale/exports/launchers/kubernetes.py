"""Manifests for Kubernetes.

Training is a JobSet: a Job for each TPU slice (pinned to a node pool of its own), or one Job over all GPU hosts, a pod
on each host. Processes find each other by the names that a JobSet gives its pods. Serving is a Deployment where a
replica is one host, and a LeaderWorkerSet where it is several, with a Service in front of those that answer. Config
files travel in a ConfigMap, so one file is all there is to apply.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dragonscale.exports.header import comments, header
from dragonscale.exports.launchers import launch_parts as parts
from dragonscale.exports.launchers.pods import CONFIG, NODEPOOL, config_map, group_spec, manifest, pod, probes, service
from dragonscale.exports.launchers.shell import SERVED
from dragonscale.exports.runs import Run, ServingRun
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.words import RANK, CopyAddress, Part, Word, changed, expansion
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.exports.yaml_text import yaml_text

TERMS = load_terms("launchers")

HOLDS_FILES = True
"""The config files are inside the manifest."""
ROUTES = True
"""A Service stands before replicas, and programs find each other by the names of theirs."""
RESTARTS = 3
"""How often a run begins again from its last checkpoint after a pod has failed."""


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """One file with all manifests."""
    name = parts.job_name(run, target)
    _check(target, written.programs)
    config = f"{name}-config" if written.files else ""
    written = _addressed(written, name)
    programs = [parts.with_files(program, CONFIG) for program in written.programs]
    documents = [config_map(config, written.files)] if config else []
    for program in programs:
        own = name if len(programs) == 1 else f"{name}-{program.name}"
        made = _served if isinstance(run, ServingRun) else _trained
        documents += made(run, target, program, own, config)
    top = header(run, f"{target.title} {target.version}", written.differences)
    remarks = comments(_remarks(run, target, programs))
    return {f"{target.name}.k8s.yaml": top + remarks + "---\n".join(map(yaml_text, documents))}


def _check(target: Target, programs: Sequence[LaunchProgram]) -> None:
    if any(program.per == "rank" and program.hosts > 1 for program in programs):
        raise TERMS.refused("needs_mpi", target=target)


def _addressed(written: WrittenFiles, name: str) -> WrittenFiles:
    """Files and words in which other programs are named by their Services."""
    names = {program.name for program in written.programs}

    def by_service(part: Part) -> Part:
        if isinstance(part, CopyAddress) and part.program in names:
            return f"{name}-{part.program}:{part.port}"
        return part

    def in_text(match: re.Match[str]) -> str:
        return str(by_service(CopyAddress(match[1], int(match[2]), int(match[3]))))

    programs = [replace(one, words=tuple(changed(word, by_service) for word in one.words)) for one in written.programs]
    named = {file: parts.ADDRESS.sub(in_text, written.files[file]) for file in written.addressed}
    return replace(written, programs=tuple(programs), files={**written.files, **named})


def _remarks(run: Run, target: Target, programs: Sequence[LaunchProgram]) -> list[str]:
    """What someone still has to fill in."""
    remarks = [parts.image_remark(program, run, target) for program in programs]
    lines = [*dict.fromkeys(one for one in remarks if one)]
    if run.slice.chip.kind == "gpu":
        lines.append("Node labels are those of GKE; elsewhere use nvidia.com/gpu.product or leave nodeSelector out.")
    if run.slice.chip.kind == "gpu" and any(program.hosts > 1 for program in programs):
        lines.append("Add what pods need for the network between hosts on your cluster (RDMA devices, hostNetwork).")
    return lines


def _trained(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A JobSet. The hosts of a program are those of all slices."""
    jobs = run.slice.pods
    hosts, job = max(program.hosts // jobs, 1), "slice" if run.slice.chip.kind == "tpu" else "worker"
    rank, env = expansion("$JOB_COMPLETION_INDEX"), []
    if jobs > 1 and parts.uses_words(program, RANK):
        rank = expansion(f"$((JOB_INDEX * {hosts} + JOB_COMPLETION_INDEX))")
        place = {"fieldRef": {"fieldPath": "metadata.annotations['jobset.sigs.k8s.io/job-index']"}}
        env = [{"name": "JOB_INDEX", "valueFrom": place}]
    inside = script(program, rank, f"{name}-{job}-0-0.{name}")
    spec = {"restartPolicy": "Never", **pod(run, target, program, inside, config, env=env)}
    metadata: dict[str, Any] = {"name": name}
    if run.slice.chip.kind == "tpu":  # a slice is a node pool, and a Job its own
        metadata["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": NODEPOOL}
    indexed = {"parallelism": hosts, "completions": hosts, "completionMode": "Indexed", "backoffLimit": 0}
    replicated = {"name": job, "replicas": jobs, "template": {"spec": {**indexed, "template": {"spec": spec}}}}
    body = {"failurePolicy": {"maxRestarts": RESTARTS}, "replicatedJobs": [replicated]}
    return [manifest("JobSet", metadata, body)]


def script(program: LaunchProgram, rank: Word, leader: Word) -> str:
    """What a pod's shell runs; the command takes the shell's place, so that it gets the signal to end."""
    words = ("else", "fi")
    lines = parts.host_lines(program, rank, leader)
    return "\n".join(line if line in words or line.startswith("if [") else f"exec {line}" for line in lines)


def group_place() -> tuple[Word, Word]:
    """The number of a pod in its group, and the address of the first, as a LeaderWorkerSet says them."""
    return expansion("$LWS_WORKER_INDEX"), expansion("$LWS_LEADER_ADDRESS")


def _served(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A program's copies with the Service in front of them."""
    program = reachable(program)
    if program.hosts > 1:
        return _groups(run, target, program, name, config)
    labels = {"app": name}
    spec = pod(run, target, program, script(program, "0", "127.0.0.1"), config, **probes(program.port))
    # Chips are taken: a new pod cannot start before an old one has gone.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": program.copies, "selector": {"matchLabels": labels}, "strategy": rolling, "template": template}
    return [manifest("Deployment", {"name": name}, body), service(name, program.port, labels)]


def reachable(program: LaunchProgram) -> LaunchProgram:
    """A program that says its port, so that a Service finds it."""
    port = program.port or SERVED
    return replace(program, port=port, words=tuple(parts.with_port(program.words, str(port))))


def _groups(run: Run, target: Target, program: LaunchProgram, name: str, config: str) -> list[dict[str, Any]]:
    """A LeaderWorkerSet: replicas of several hosts, of which the first answers."""
    inside = script(program, *group_place())
    leader, worker = (pod(run, target, program, inside, config, **more) for more in (probes(program.port), {}))
    metadata: dict[str, Any] = {"name": name}
    if run.slice.chip.kind == "tpu":
        metadata["annotations"] = {"leaderworkerset.sigs.k8s.io/exclusive-topology": NODEPOOL}
    first = {"metadata": {"labels": {"role": "leader"}}, "spec": leader}
    sets = manifest("LeaderWorkerSet", metadata, group_spec(program, first, worker))
    return [sets, service(name, program.port, {"leaderworkerset.sigs.k8s.io/name": name, "role": "leader"})]
