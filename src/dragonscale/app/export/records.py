"""The record that `dscale export` answers with; `--json` prints it as it is."""

from typing import Any

import msgspec

from dragonscale.app.record import Record
from dragonscale.errors import InputError, shorten
from dragonscale.files import write_file
from dragonscale.sheets.sheet import Block, NextStep, Prose, Sheet, Title, Verbatim, facts


class DifferenceRow(msgspec.Struct):
    """Something of the plan that the target cannot say."""

    setting: str
    planned: str
    instead: str
    why: str


class ExportReport(Record):
    """The files, by name; the first is what to start. `step_s`, `ttft_s` and `tpot_s` are what is expected of the plan
    as the target runs it; `planned_s` is the step, or the TPOT, of the plan as it was asked for, where the target runs
    another."""

    target: str
    version: str
    launcher: str
    model: str
    slice: str
    plan: dict[str, Any]
    files: dict[str, str]
    expected: list[str]
    differences: list[DifferenceRow] = []
    notes: list[str] = []
    step_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    planned_s: float | None = None
    hbm_bytes: float | None = None
    written: list[str] = []
    """The paths that were written."""

    ROWS = ""

    def headline(self) -> str:
        return f"{self.model} on {self.slice} for {self.target} {self.version}: {', '.join(self.files)}"

    def sheet(self, detail: bool = False) -> Sheet:  # noqa: ARG002  there is nothing behind files
        """The files themselves where nothing was written; a list of them where it was."""
        if not self.written:
            return Sheet((Verbatim(self.text()),))
        blocks: list[Block] = [Title(f"{self.model} on {self.slice}", f"for {self.target} {self.version}".strip())]
        blocks.append(
            facts(
                *((("files" if not place else ""), path) for place, path in enumerate(self.written)),
                *(("expected", text) for text in self.expected[:1]),
            )
        )
        blocks += [Prose(f"{row.planned} cannot be said there; {row.instead}.", "warn") for row in self.differences]
        blocks.append(NextStep(f"dscale import {self.written[0]}", "reads it back"))
        return Sheet(tuple(blocks))

    def text(self) -> str:
        """The files one after the other, each after its name where there are several."""
        if len(self.files) == 1:
            return next(iter(self.files.values())).rstrip("\n")
        return "\n\n".join(f"# ---- {name} ----\n{text.rstrip()}" for name, text in self.files.items())

    def save(self, path: str) -> str | None:
        """Write the files into a folder."""
        self.write_into(path)
        return None

    def write_into(self, folder: str, overwrite: bool = False) -> None:
        """Write the files into a folder; files that are there stay unless they may be written over."""
        from pathlib import Path

        place = Path(folder)
        if place.exists() and not place.is_dir():
            raise InputError(f"--out is {shorten(folder)}, which is a file; give a folder.")
        there = [name for name in self.files if (place / name).exists()]
        if there and not overwrite:
            raise InputError(f"{shorten(str(place / there[0]))} is there already; give --overwrite or another --out.")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"The folder {shorten(folder)} cannot be made: {error.strerror}.") from None
        for name, text in self.files.items():
            write_file(place / name, text, "The export")
            if name.endswith((".sh", ".sbatch")):
                (place / name).chmod(0o755)
        self.written = [str(place / name) for name in self.files]
