"""A shell script that starts the programs of an export on one host, or on each of several.

On several hosts the same script is started on each, with `NODE_RANK` and `MASTER_ADDR` set; torchrun starts a process
for each chip where the software wants one. Replicas that need only a part of a host are started beside each other, each
with its own chips and its own port.
"""

from dragonscale.exports.launchers import launch_parts as parts
from dragonscale.exports.runs import Run, header
from dragonscale.exports.target import Target
from dragonscale.exports.written import LaunchProgram, WrittenFiles, expansion
from dragonscale.physics.hardware.chip import Chip

SERVED = 8000
"""The port of an engine that names none."""
HOLDS_FILES, ROUTES = False, ""


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """A script for each program."""
    title = f"{target.title} {target.version}"
    many = len(written.programs) > 1
    files: dict[str, str] = {}
    for one in parts.placed(written.programs, run.slice.chip.host_chips):
        name = f"{target.name}-{one.program.name}.sh" if many else f"{target.name}.sh"
        lines = ["#!/usr/bin/env bash", header(run, title, written.differences) + "set -euo pipefail"]
        files[name] = "\n".join([*lines, *_body(one, run.slice.chip)]) + "\n"
    return files


def _body(one: parts.OnHosts, chip: Chip) -> list[str]:
    program = one.program
    lines = [*parts.env_lines(program.env), *parts.own_address(program, "$(hostname -i)")]
    if program.per == "rank":
        lines.append(f"# Start this on the first of {program.hosts} hosts; MPI has to know the others (--hostfile).")
    elif program.hosts > 1:
        times = f"{program.copies} times" if program.copies > 1 else "the"
        lines += _wanted(program, f"each of {times} {program.hosts} hosts")
    elif program.copies > 1 and one.sharing == 1:
        lines.append(f"# Start this on each of {program.copies} hosts: one replica each.")
    if one.sharing > 1:
        return [*lines, *beside(one, chip)]
    return [*lines, "", *parts.host_lines(program, expansion("$NODE_RANK"), expansion("$MASTER_ADDR"))]


def _wanted(program: LaunchProgram, hosts: str) -> list[str]:
    """What whoever starts the script on a host has to say: no more than the command uses. JAX finds the hosts of a
    TPU slice by itself."""
    rank = ["NODE_RANK=${NODE_RANK:?0 to " + str(program.hosts - 1) + "}"] if parts.needs_rank(program) else []
    leader = ["MASTER_ADDR=${MASTER_ADDR:?the first host}"] if parts.needs_leader(program) else []
    said = " and ".join(what for what, line in (("its number", rank), ("the first host's address", leader)) if line)
    return [f"# Start this on {hosts}{', with ' if said else ''}{said}.", *rank, *leader]


def own_port(program: LaunchProgram, place: str) -> str:
    """The port of a copy by its number on its host, as the shell counts it."""
    return f"$(({program.port or SERVED} + {place}{f' * {program.apart}' if program.apart > 1 else ''}))"


def beside(one: parts.OnHosts, chip: Chip) -> list[str]:
    """Lines that start copies beside each other on a host."""
    program = one.program
    lines = []
    if one.hosts > 1:
        rest = program.copies - (one.hosts - 1) * one.sharing
        where = f"on each of {one.hosts} hosts, on the last with COPIES={rest}"
        lines.append(f"# {program.copies} replicas: start this {where}.")
    # bash lets what runs in the background live on, with its chips, when the script is stopped
    lines += ["trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"]
    lines += [f"COPIES=${{COPIES:-{one.sharing}}}", "for ((copy = 0; copy < COPIES; copy++)); do"]
    lines += parts.own_chips(chip, program.chips, "copy")
    command = parts.host_lines(program, "0", "127.0.0.1", expansion(own_port(program, "copy")))
    return [*lines, *command[:-1], f"{command[-1]} &", "done", "wait"]
