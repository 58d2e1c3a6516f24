"""One line of JSON for every step, in a file that stays one curve however often the run stopped.

When a run resumes from step N, lines after N were of steps that are done again: they are dropped, and so is a line that
was cut when the process died.
"""

import contextlib
import json
from pathlib import Path
from typing import Any, TextIO

from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.files import write_file


class Metrics:
    """A file of lines; without a path nothing is written."""

    def __init__(self, path: str, after: int) -> None:
        self.file: TextIO | None = None
        self.path = Path(path)
        if not path:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._keep(after)
            self.file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  closed by close()
        except OSError as error:
            raise InputError(f"Metrics cannot be written to {shorten(path)}: {error.strerror or error}.") from None

    def _keep(self, after: int) -> None:
        if not self.path.exists():
            return
        lines = [json.dumps(line) + "\n" for line in read_metrics(self.path) if line["step"] <= after]
        write_file(self.path, "".join(lines), "The file of metrics")

    def write(self, line: dict[str, Any]) -> None:
        """Add one line, at once."""
        if self.file is None:
            return
        try:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        except OSError as error:
            raise Infeasible(
                f"Metrics cannot be written to {shorten(str(self.path), 200)}: {error.strerror or error}."
            ) from None

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; what is no line of metrics is left out."""
    found: list[dict[str, Any]] = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            found.append(line)
    return found
