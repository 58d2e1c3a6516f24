"""A shell script that starts the programs of an export on one host, or on each of several.

On several hosts the same script is started on each, with `NODE_RANK` and `MASTER_ADDR` set; torchrun starts a process
for each chip where the software wants one. Replicas that need only a part of a host are started beside each other, each
with its own chips and its own port.
"""

from dragonscale.exports.header import header
from dragonscale.exports.launchers.own_chips import own_chips
from dragonscale.exports.launchers.parts import (
    OnHosts,
    env_lines,
    host_lines,
    needs_leader,
    needs_rank,
    own_address,
    placed,
)
from dragonscale.exports.runs import Run
from dragonscale.exports.target import Target
from dragonscale.exports.words import expansion
from dragonscale.exports.written import LaunchProgram, WrittenFiles
from dragonscale.physics.hardware.chip import Chip

SERVED = 8000
"""The port of an engine that names none."""
HOLDS_FILES = ROUTES = False


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """A script for each program."""
    title = f"{target.title} {target.version}"
    many = len(written.programs) > 1
    files: dict[str, str] = {}
    for one in placed(written.programs, run.slice.chip.host_chips):
        name = f"{target.name}-{one.program.name}.sh" if many else f"{target.name}.sh"
        lines = ["#!/usr/bin/env bash", header(run, title, written.differences) + "set -euo pipefail"]
        files[name] = "\n".join([*lines, *_body(one, run.slice.chip)]) + "\n"
    return files


def _body(one: OnHosts, chip: Chip) -> list[str]:
    program = one.program
    lines = [*env_lines(program.env), *own_address(program, "$(hostname -i)")]
    if program.per == "rank":
        lines.append(f"# Start this on the first of {program.hosts} hosts; MPI has to know the others (--hostfile).")
    elif program.hosts > 1:
        each = (
            f"each of {program.copies} times {program.hosts} hosts"
            if program.copies > 1
            else f"each of the {program.hosts} hosts"
        )
        lines += _wanted(program, each)
    elif program.copies > 1 and one.sharing == 1:
        lines.append(f"# Start this on each of {program.copies} hosts: one replica each.")
    if one.sharing > 1:
        return [*lines, *beside(one, chip)]
    return [*lines, "", *host_lines(program, expansion("$NODE_RANK"), expansion("$MASTER_ADDR"))]


def _wanted(program: LaunchProgram, hosts: str) -> list[str]:
    """What whoever starts the script on a host has to say: no more than the command uses. JAX finds the hosts of a
    TPU slice by itself."""
    wanted = {
        "its number": ["NODE_RANK=${NODE_RANK:?0 to " + str(program.hosts - 1) + "}"] if needs_rank(program) else [],
        "the first host's address": ["MASTER_ADDR=${MASTER_ADDR:?the first host}"] if needs_leader(program) else [],
    }
    said = " and ".join(what for what, line in wanted.items() if line)
    return [
        f"# Start this on {hosts}{', with ' if said else ''}{said}.",
        *(one for line in wanted.values() for one in line),
    ]


def beside(one: OnHosts, chip: Chip) -> list[str]:
    """Lines that start copies beside each other on a host."""
    program = one.program
    lines = []
    if one.hosts > 1:
        rest = program.copies - (one.hosts - 1) * one.sharing
        lines.append(
            f"# {program.copies} replicas: start this on each of {one.hosts} hosts, on the last with COPIES={rest}."
        )
    lines += [f"COPIES=${{COPIES:-{one.sharing}}}", "for ((copy = 0; copy < COPIES; copy++)); do"]
    lines += own_chips(chip, program.chips, "copy")
    port = expansion(f"$(({program.port or SERVED} + copy))")
    command = host_lines(program, "0", "127.0.0.1", port)
    return [*lines, *command[:-1], f"{command[-1]} &", "done", "wait"]
