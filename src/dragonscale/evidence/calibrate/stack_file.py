"""A stack and an engine of the user's own, as `--stack FILE` and `--engine FILE` take them: what differs from those of
our own programs, why, and how far off it was on models left out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dragonscale.evidence.calibrate.stack_fit import FREE_ENGINE, FREE_STACK, Settled, constant
from dragonscale.plan.measured_on import MeasuredOn
from dragonscale.plan.settings import read_settings
from dragonscale.tables import toml_value

BASE, ENGINE = "dragonscale", "jax-program"
"""The stack and the engine that describe our own programs of a step."""


def stack_text(
    settled: Settled,
    measured: Mapping[str, MeasuredOn],
    where: str,
    date: str,
    tpu: Mapping[str, Sequence[str]] | None,
) -> str:
    """The file. `where` says what it was measured with; `tpu` are the base's switches for TPUs, by table, where the
    chip is one."""
    head = f"# Written by `dscale calibrate --stack` on {date}, {where}. Take it with --stack FILE and --engine FILE."
    why = f"Our own JAX program, its constants settled on whole steps: {where}, {date}."
    parts = [head]
    for table, base, record, free, whats in (
        ("stack", BASE, settled.stack, FREE_STACK, ("training",)),
        ("engine", ENGINE, settled.engine, FREE_ENGINE, ("prefill", "decode")),
    ):
        groups = read_settings((tpu or {}).get(table, ()))
        for path in free:
            group, name = path.split(".")
            groups.setdefault(group, {})[name] = constant(record, path)
        parts.append(
            f"[{table}]\nbase = {toml_value(base)}\nwhy = {toml_value(why)}" + ("" if tpu is None else "\ntpu = []")
        )
        parts += [f"[{table}.{group}]\n{_lines(values)}" for group, values in groups.items()]
        rows: Iterable[MeasuredOn] = (measured[what] for what in whats if what in measured)
        parts += [f"[[{table}.measured]]\n{_lines(msgspec.to_builtins(one))}" for one in rows]
    return "\n\n".join(parts) + "\n"


def _lines(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{name} = {toml_value(value)}" for name, value in values.items())
