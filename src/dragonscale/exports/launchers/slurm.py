"""A batch script for Slurm: one job that holds all hosts, a task on each of them.

torchrun's processes meet on the first host of the allocation. Several programs (the pools of disaggregated serving) and
replicas are steps of the same job, each on hosts of its own; replicas that need only a part of a host share one, each
with its own chips and port. `--cpu-bind=none` leaves a host's cores to the one task that is there, which starts all
others. In racks that are one NVLink domain, `--segment` keeps as many trays together as the plan counts on (where Slurm
knows its blocks). The time is asked for where the steps of the run are known: the expected time and a fifth more.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dragonscale.exports import written as words
from dragonscale.exports.launchers import launch_parts as parts
from dragonscale.exports.launchers.shell import own_port
from dragonscale.exports.runs import Run, TrainingRun, header
from dragonscale.exports.target import Target
from dragonscale.exports.terms import load_terms
from dragonscale.exports.written import RANK, LaunchProgram, Part, Word, WrittenFiles, expansion, quoted
from dragonscale.physics.hardware.chip import Chip, Tree

TERMS = load_terms("launchers")

SPARE = 1.2
"""Time that is asked for, of the time that is expected."""
HOLDS_FILES, ROUTES = False, ""


def launch(run: Run, target: Target, written: WrittenFiles) -> dict[str, str]:
    """The script."""
    chip = run.slice.chip
    for program in written.programs:
        if (other := parts.run_of(program, run).slice.chip.name) != chip.name:
            raise TERMS.refused("one_kind", chip=chip, other=other)
    places = parts.placed(written.programs, chip.host_chips)
    lines = ["#!/usr/bin/env bash", *_asked(run, target, places)]
    lines.append(header(run, f"{target.title} {target.version}", written.differences) + "set -euo pipefail")
    lines.append('hosts=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))')
    alone = len(places) == 1 and places[0].program.copies == 1
    edits, moved = _with_addresses(written, places)
    lines += edits
    for one in places:
        one = replace(one, program=_addressed(one.program, places, moved))
        lines += ["", *(_alone(one.program) if alone else _copies(one, chip))]
    return {f"{target.name}.sbatch": "\n".join([*lines, *([] if alone else ["", "wait"])]) + "\n"}


def _with_addresses(written: WrittenFiles, places: list[parts.OnHosts]) -> tuple[list[str], dict[str, Word]]:
    """Lines that write the hosts of this job into files that name programs, and what those files are then called."""
    lines, moved = [], dict[str, Word]()
    for name in written.addressed:
        found = parts.addresses(written.files[name], places)
        if found:
            moved[name] = expansion("$SLURM_JOB_ID") + f"-{name}"
            edits = " ".join(f'-e "s/{said}/${{hosts[{host}]}}:{port}/"' for said, (host, port) in found.items())
            lines.append(f"sed {edits} {quoted(name)} > {quoted(moved[name])}")
    return lines, moved


def _addressed(program: LaunchProgram, places: list[parts.OnHosts], moved: Mapping[str, Word]) -> LaunchProgram:
    """A program whose words name hosts of the job."""
    named = {one.program.name: one for one in places}

    def on_host(part: Part) -> Word | Part:
        if isinstance(part, words.CopyAddress) and part.program in named:
            host, port = named[part.program].place_of(part.copy, part.port)
            return expansion(f"${{hosts[{host}]}}") + f":{port}"
        return moved.get(part.name, part) if isinstance(part, words.ConfigFile) else part

    return parts.with_words(program, on_host)


def _asked(run: Run, target: Target, places: list[parts.OnHosts]) -> list[str]:
    """What the job asks Slurm for."""
    chip, hosts = run.slice.chip, max(sum(one.hosts for one in places), 1)
    most = max(min(one.program.chips * one.sharing, chip.host_chips) for one in places)
    tasks = max(_tasks(one.program) for one in places)
    asked = {"job-name": parts.job_name(run, target), "nodes": hosts, "ntasks-per-node": tasks}
    if chip.kind == "gpu":
        asked["gpus-per-node"] = most
    if trays := _together(run):
        asked["segment"] = trays
    whole = {"exclusive": "", "mem": 0} if most == chip.host_chips else {}
    said = {**asked, **whole, "time": _time(run), "output": "%x-%j.log"}
    values = {name: f"={value}" if value != "" else "" for name, value in said.items() if value is not None}
    return [f"#SBATCH --{name}{value}" for name, value in values.items()]


def _together(run: Run) -> int:
    """Trays of a rack that are one NVLink domain and belong together; 0 where a host is a domain of its own."""
    chip = run.slice.chip
    if not isinstance(chip.network, Tree):
        return 0
    domain = min(chip.network.levels[0].degree, run.slice.chips)
    return domain // chip.host_chips if domain > chip.host_chips else 0


def _time(run: Run) -> str | None:
    """Days and hours of the run; None where its steps or their time are not known.

    >>> clock(90_000)
    '1-01:00:00'
    """
    if not isinstance(run, TrainingRun) or not run.steps or not run.step_s:
        return None
    return clock(run.steps * run.step_s * SPARE)


def clock(seconds: float) -> str:
    """A time as Slurm takes it, in whole hours."""
    days, hours = divmod(max(math.ceil(seconds / 3600), 1), 24)
    return f"{days}-{hours:02}:00:00"


def _alone(program: LaunchProgram) -> list[str]:
    """The one program of a job, on all its hosts."""
    return [
        "export MASTER_ADDR=${hosts[0]}",
        *parts.env_lines(program.env),
        "",
        _step(program, ["--kill-on-bad-exit=1"]),
    ]


def _copies(one: parts.OnHosts, chip: Chip) -> list[str]:
    """Steps of a program's copies in the background, each on its own hosts or on its own chips of one."""
    program = one.program
    at = f"{one.first} + copy * {program.hosts}" if one.sharing == 1 else f"{one.first} + copy / {one.sharing}"
    lines = [f"# {program.name}", f"for ((copy = 0; copy < {program.copies}; copy++)); do"]
    lines += [f"first=$(({at}))", "export MASTER_ADDR=${hosts[first]}", f'own="${{hosts[*]:first:{program.hosts}}}"']
    lines += parts.env_lines(program.env)
    port, inside, own = "", list[str](), list(program.env)
    if one.sharing > 1:
        # PLACE is the number of a replica on its host.
        lines += [f"export PLACE=$((copy % {one.sharing}))", f"export PORT={own_port(program, 'PLACE')}"]
        own += ["PLACE", "PORT"]
        port, inside = expansion("$PORT"), parts.own_part(chip, program.chips, "PLACE")
    place = ["--overlap", '--nodelist="${own// /,}"', f'--output="%x-%j-{program.name}-$copy.log"']
    # The next program has none of these.
    return [*lines, f"{_step(program, place, port, inside)} &", "done", *([f"unset {' '.join(own)}"] if own else [])]


def _tasks(program: LaunchProgram) -> int:
    """Tasks on a host: MPI has one for each chip."""
    return program.chips if program.per == "rank" else 1


def _step(program: LaunchProgram, options: list[str], port: Word = "", own: Sequence[str] = ()) -> str:
    """The step: a task on each host. torchrun needs no number of the host, a program with its own ranks does, and only
    the task knows it: then a shell fills it in there. `own` are lines that the task runs first."""
    each = _tasks(program)
    srun = ["srun", f"--nodes={program.hosts}", f"--ntasks={program.hosts * each}", f"--ntasks-per-node={each}"]
    lead = " ".join([*srun, "--cpu-bind=none", *(["--mpi=pmix"] if program.per == "rank" else []), *options])
    job, leader = expansion("$SLURM_JOB_ID"), expansion("$MASTER_ADDR")
    meet = ["--rdzv-id", job, "--rdzv-backend", "c10d", "--rdzv-endpoint", leader + f":{parts.PORT}"]
    if program.per == "rank":
        program = replace(program, per="host")  # Slurm itself starts the ranks
    first = [*own, *parts.own_address(program, "$SLURMD_NODENAME")]
    text = "\n".join([*first, *parts.host_lines(program, expansion("$SLURM_PROCID"), leader, port, meet)])
    inside = first or (program.hosts > 1 and (parts.uses_words(program, RANK) or program.others))
    return f"{lead} bash -c {shlex.quote(text)}" if inside else f"{lead} \\\n    {text}"
