"""A sweep: every entry of a grid answered, on this machine's cores or on a Ray cluster.

A grid is a TOML file: tables of flags whose values may be lists; every combination of them is asked.

    [[verify]]
    program = "train"
    model = ["llama3-8b", "llama3-70b"]
    slice = "h100:64"
    plan = ["fsdp=64,remat=block", "fsdp=8,tensor=8,remat=block"]
    batch = "64seq"
    seq = 8192

    [[train]]
    model = "llama3-70b"
    slice = ["h100:512", "v5p:8x8x8"]
    batch = ["4M", "16M"]
    seq = 8192

    [[simulate]]
    model = "llama3-8b"
    slice = "h100:1"
    replicas = [2, 4]
    rate = ["10/s", "20/s"]
    seed = [0, 1, 2]

Names are those of the commands' flags (`slice` may be written for `on`). `option` belongs to all entries of its table.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dragonscale.commands.questions.flag import fields_of
from dragonscale.commands.questions.serve import ServeQuestion
from dragonscale.commands.questions.simulate import SimulateQuestion
from dragonscale.commands.questions.synonyms import flag_in_python, names_with_synonyms, takes_value
from dragonscale.commands.questions.train import SweepQuestion, TrainQuestion
from dragonscale.commands.questions.verify import VerifyQuestion
from dragonscale.commands.record import Face, bind
from dragonscale.commands.sweep.sweep_blocks import sweep_blocks
from dragonscale.commands.sweep.sweep_charts import check_columns, draw
from dragonscale.commands.sweep.sweep_records import COMMANDS, Entry, SweepReport, open_answers
from dragonscale.commands.sweep.sweep_rows import flat_rows, verify_score
from dragonscale.commands.sweep.sweep_tables import save_table
from dragonscale.commands.sweep.workers import cores, interruptible, on_ray, pooled
from dragonscale.errors import InputError, shorten, unknown
from dragonscale.listener import Listener
from dragonscale.serving.steady.targets import LATENCIES
from dragonscale.tables import read_table
from dragonscale.training.plan.plan_file import is_plan_path

MOST = 100_000
QUESTIONS: dict[str, Any] = {
    "verify": VerifyQuestion,
    "train": TrainQuestion,
    "serve": ServeQuestion,
    "simulate": SimulateQuestion,
}
# What a training run must say, unless a plan file says it.
NEEDED = ("model", "on")
_WRITTEN = {"slice": "on", "option": "options"}


def read_grid(grid: str | Mapping[str, Any]) -> list[Entry]:
    """Every entry of a grid, a file or its tables, in order, each once."""
    path = grid if isinstance(grid, str) else "that was given"
    if isinstance(grid, str):
        table = read_table(Path(grid), "Grid")
    else:
        table = grid
    for name in table:
        if name not in COMMANDS:
            raise unknown(f"command in the grid {shorten(path)} called", name, COMMANDS)
    entries: dict[str, Entry] = {}
    for command in COMMANDS:
        tables = table.get(command, [])
        if not isinstance(tables, list) or not all(isinstance(table_of, dict) for table_of in tables):
            raise InputError(f"In the grid {shorten(path)} {command!r} is not a list of tables; write [[{command}]].")
        for table_of in tables:
            for entry in product_of(command, table_of):
                entries.setdefault(entry.key, entry)
                if len(entries) > MOST:
                    raise InputError(f"The grid {shorten(path)} has more than {MOST:,} entries; make it smaller.")
    if not entries:
        raise InputError(f"The grid {shorten(path)} asks nothing; write a table such as [[verify]] with a plan in it.")
    return list(entries.values())


def product_of(command: str, table: dict[str, Any]) -> Iterator[Entry]:
    """Every combination of a table's values.

    >>> [entry.asks["batch"] for entry in product_of("train", {"model": "m", "on": "s", "seq": 8, "batch": ["1M", 64]})]
    ['1M', '64']
    >>> [entry.asks["fix"] for entry in product_of("train", {"model": "m", "on": "s", "tp": [2, 4]})]
    ['tp2', 'tp4']
    """
    question_fields = fields_of(QUESTIONS[command])
    fields = {field.name: field for field in question_fields}
    lists: list[list[tuple[str, Any]]] = []
    for written, value in table.items():
        name = _field(command, written)
        synonym = takes_value(flag_in_python(name), question_fields) is not None
        if name not in fields and not synonym:
            raise unknown(f"part of a [[{command}]] table called", written, [*fields, "slice"])
        if isinstance(value, list) and name != "options":
            several = value
        else:
            several = [value]
        if not several:
            raise InputError(f"In a [[{command}]] table {written} is an empty list; write at least one value.")
        try:
            lists.append([(name, value if synonym else fields[name].taken(value)) for value in several])
        except InputError as error:
            raise InputError(f"In a [[{command}]] table: {error}") from None
    firsts = dict(pairs[0] for pairs in lists)
    named = set(names_with_synonyms(question_fields, firsts).values)
    # a plan file may say what the table does not
    files = [value for pairs in lists for name, value in pairs if name == "plan" and is_plan_path(value)]
    for name, field in fields.items():
        needed = field.required or (command == "train" and name in NEEDED and not files)
        if needed and name not in named:
            raise InputError(f"A [[{command}]] table does not say its {name}; every entry needs one.")
    for chosen in itertools.product(*lists):
        values = names_with_synonyms(question_fields, dict(chosen)).values
        asks = {name: value if name in firsts else fields[name].taken(value) for name, value in values.items()}
        yield Entry(command, asks)  # type: ignore[arg-type]


def _field(command: str, written: str) -> str:
    """The field that a name of a table means: its own, or another spelling of its flag.

    >>> _field("serve", "kv"), _field("serve", "slice")
    ('kv_dtype', 'on')
    """
    flag = "--" + written.replace("_", "-")
    also = {spelling: field.name for field in fields_of(QUESTIONS[command]) for spelling in field.also}
    return _WRITTEN.get(written, also.get(flag, written))


MOST_JOBS = 1024


def sweep(
    grid: str | Mapping[str, Any],
    out: str = "",
    jobs: int = 0,
    ray: str = "",
    retry: bool = False,
    cached: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> SweepReport:
    """Answer what is not in `out` yet, and with `retry` what failed before; Ctrl-C and SIGTERM leave what was answered
    until then."""
    if not 0 <= jobs <= MOST_JOBS:
        raise InputError(f"--jobs is {jobs}; write a number of processes from 1 to {MOST_JOBS}.")
    entries, done, stopped, start = read_grid(grid), 0, False, time.monotonic()
    with open_answers(out) if out else contextlib.nullcontext() as file, interruptible() as interrupt:
        earlier = {}
        if file is not None:
            earlier = file.known
        answers = {entry.key: earlier[entry.key] for entry in entries if entry.key in earlier}
        # answers that need no second try
        done_ones = {key for key, answer in answers.items() if not (retry and answer.failed)}
        open_ones = [entry for entry in entries if entry.key not in done_ones]
        before = len(entries) - len(open_ones)
        if ray and open_ones:
            arriving = on_ray(open_ones, ray, cached)
        else:
            arriving = pooled(open_ones, jobs or cores(), cached)
        try:
            with contextlib.closing(arriving):  # its processes end here, whatever happens
                for answer in arriving:
                    if file is not None:
                        file.append(answer)
                    answers[answer.key], done = answer, done + 1
                    if progress is not None:
                        progress(before + done, len(entries))
                    interrupt.check()
        except KeyboardInterrupt:
            stopped = True
    rows, name = flat_rows(entries, answers), grid if isinstance(grid, str) else "a grid"
    counts = len(entries), before, done, sum(bool(row["failed"]) for row in rows), time.monotonic() - start
    score = verify_score(answers[entry.key] for entry in entries if entry.key in answers)
    return SweepReport(name, *counts, rows, score, stopped=stopped, terminated=stopped and interrupt.terminated)


def ask(question: SweepQuestion, listener: Listener) -> SweepReport:
    """Answer every entry of a grid; Ctrl-C leaves what was answered until then."""
    if question.columns:
        check_columns(question.columns, read_grid(question.grid))
    listener.wait("Sweeping; Ctrl-C stops it, and what is answered by then stays in --out.")
    report = sweep(
        question.grid, question.out, question.jobs, question.ray, question.retry, question.cache, listener.step
    )
    if report.terminated:
        if question.out:
            left = "what was answered by then is in --out"
        else:
            left = "without --out, nothing of it is kept"
        listener.note(f"SIGTERM stopped the sweep; {left}.")
    plans = [row for row in report.lines if row["command"] == "serve"]
    if any(str(row.get(name, "")).startswith("p") for row in plans for name in LATENCIES):  # p95:1s
        listener.note("Targets for percentiles are judged by means in a sweep; `dscale serve` runs them.")
    return report.came_from(question, listener.notes)


bind(SweepReport, Face(sweep_blocks, draw, table=save_table))
