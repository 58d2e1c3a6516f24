"""A shell script that starts the programs of an export on one host, or on each of several.

On several hosts the same script is started on each, with `NODE_RANK` and `MASTER_ADDR` set; torchrun starts a process for
each chip where the software wants one.
"""

import shlex

from dragonscale.exports.flags import shell_lines
from dragonscale.exports.header import header
from dragonscale.exports.runs import Run
from dragonscale.exports.target import Target
from dragonscale.exports.written import HOSTS, LEADER, RANK, Program, Written

PORT = 29500


def launch(run: Run, target: Target, written: Written) -> dict[str, str]:
    """A script for each program."""
    title = f"{target.title} {target.version}"
    many = len(written.programs) > 1
    files: dict[str, str] = {}
    for program in written.programs:
        name = f"{target.name}-{program.name}.sh" if many else f"{target.name}.sh"
        lines = ["#!/usr/bin/env bash", header(run, title, written.differences) + "set -euo pipefail"]
        if program.hosts > 1:
            lines.append(
                f"# Start this on each of the {program.hosts} hosts, with its number and the first host's address."
            )
            lines += [
                "NODE_RANK=${NODE_RANK:?0 to " + str(program.hosts - 1) + "}",
                "MASTER_ADDR=${MASTER_ADDR:?the first host}",
            ]
        lines += [f"export {key}={shlex.quote(value)}" for key, value in program.env.items()]
        files[name] = "\n".join([*lines, "", shell_lines(started(program, "$NODE_RANK", "$MASTER_ADDR"))]) + "\n"
    return files


def started(program: Program, rank: str, leader: str) -> list[str]:
    """A program's words as one host starts them."""
    fill = {RANK: rank, LEADER: leader, HOSTS: str(program.hosts)}
    words = [_filled(word, fill) for word in program.words]
    if program.per == "host":
        return words
    if program.per == "rank":
        return ["mpirun", "-n", str(program.hosts * program.chips), "-N", str(program.chips), *words]
    each = ["torchrun", "--nproc-per-node", str(program.chips)]
    if program.hosts > 1:
        each += [
            "--nnodes",
            str(program.hosts),
            "--node-rank",
            rank,
            "--master-addr",
            leader,
            "--master-port",
            str(PORT),
        ]
    return [*each, *(["-m"] if program.module else []), *words]


def _filled(word: str, fill: dict[str, str]) -> str:
    for mark, value in fill.items():
        word = word.replace(mark, value)
    return word
