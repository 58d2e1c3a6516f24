"""Tasks for SkyPilot: `sky launch` starts them on a cloud or on Kubernetes, `sky serve up` keeps replicas of an engine.

SkyPilot runs the same commands on each node and says which one it is (`SKYPILOT_NODE_RANK`, `SKYPILOT_NODE_IPS`). A TPU
slice is one node with several hosts, on each of which the commands run. The folder of the task is copied to the nodes,
so config files are found beside it.
"""

from typing import Any

from dragonscale.errors import Infeasible
from dragonscale.exports.keys import shell_lines
from dragonscale.exports.launchers import launch_parts as parts
from dragonscale.exports.launchers.kubernetes import reachable
from dragonscale.exports.runs import Run, ServingRun, comments, header
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import LaunchProgram, WrittenFiles, expansion, yaml_text
from dragonscale.physics.hardware import Slice
from dragonscale.physics.hardware.parts import cores

TERMS = load_terms("launchers")
_TPUS = {"v2": "v2", "v3": "v3", "v4": "v4", "v5e": "v5litepod", "v5p": "v5p", "v6e": "v6e"}
HOLDS_FILES, ROUTES = False, "replicas"
"""SkyServe balances over the replicas of a service; tasks of their own do not find each other."""


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """A task for each program."""
    many = len(written.programs) > 1
    files: dict[str, str] = {}
    for program in written.programs:
        name = f"{target.name}-{program.name}" if many else target.name
        top = header(run, f"{target.title} {target.version}", written.differences)
        task = yaml_text(_task(run, target, program, bool(written.files)))
        files[f"{name}.sky.yaml"] = top + comments(_remarks(run, target, program)) + task
    return files


def _remarks(run: Run, target: Target, program: LaunchProgram) -> list[str]:
    start = "sky serve up" if isinstance(run, ServingRun) and program.copies > 1 else "sky launch"
    token = ", with --secret HF_TOKEN for a gated model" if isinstance(run, ServingRun) and program.chips else ""
    if parts.needs_image(program, run, target):
        return [f"{start} starts it{token}; add a setup that installs {target.title} {target.version}."]
    return [f"{start} starts it{token}.", *filter(None, [parts.image_remark(program, run, target)])]


def _task(run: Run, target: Target, program: LaunchProgram, files: bool) -> dict[str, Any]:
    piece = parts.run_of(program, run).slice
    serves = isinstance(run, ServingRun)
    program = reachable(program) if serves else program
    image = "" if parts.needs_image(program, run, target) else f"docker:{parts.image_of(program, run, target)}"
    values = {
        "name": parts.job_name(run, target),
        "accelerators": accelerators(piece, program.chips) if program.chips else "",
        "image": image,
        "nodes": nodes(piece, program),
        "beside": files or not serves,  # a trainer's own scripts lie there too
        "serves": serves,
    }
    task = TERMS.group("task", program, **values)
    lines = parts.host_lines(program, expansion("$SKYPILOT_NODE_RANK"), expansion("$MASTER_ADDR"))
    if program.per == "rank" and program.hosts > 1:
        names = f'hosts=$(echo "$SKYPILOT_NODE_IPS" | sed "s/$/:{program.chips}/" | paste -sd,)'
        start = shell_lines(["mpirun", "--host", expansion("$hosts"), *parts.started(program, "", "")[1:]])
        return {**task, "run": "\n".join([names, 'if [ "$SKYPILOT_NODE_RANK" = 0 ]; then', start, "fi"]) + "\n"}
    lead = ['MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)'] if program.hosts > 1 else []
    lead += parts.own_address(program, "$(hostname -i)")
    return {**task, "run": "\n".join([*lead, *lines]) + "\n"}


def nodes(piece: Slice, program: LaunchProgram) -> int:
    """Nodes as SkyPilot counts them: hosts with GPUs, or whole TPU slices."""
    return piece.pods if piece.chip.kind == "tpu" else program.hosts


def accelerators(piece: Slice, chips: int) -> str:
    """A node's accelerators by SkyPilot's names; Cloud names of TPUs count cores where a chip has two.

    >>> from dragonscale.physics.hardware import parse_slice
    >>> (
    ...     accelerators(parse_slice("h100:16"), 8),
    ...     accelerators(parse_slice("v5p:4x4x4"), 4),
    ...     accelerators(parse_slice("v6e:4x4"), 4),
    ... )
    ('H100:8', 'tpu-v5p-128', 'tpu-v6e-16')
    """
    chip = piece.chip
    if chip.kind == "tpu":
        if chip.name not in _TPUS:
            raise Infeasible(f"SkyPilot has no {chip.title}; it has {', '.join(_TPUS)}.")
        return f"tpu-{_TPUS[chip.name]}-{piece.chips // piece.pods * cores(chip)}"
    if chip.name not in parts.SKY:
        raise Infeasible(f"SkyPilot has no {chip.title}; it has {', '.join(parts.SKY)}.")
    return f"{parts.SKY[chip.name]}:{chips}"
