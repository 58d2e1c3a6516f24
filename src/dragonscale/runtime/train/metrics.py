"""One line of JSON for every step, in a file that stays one curve however often the run stopped; the same for
TensorBoard and for Weights & Biases.

When a run resumes from step N, lines after N were of steps that are done again: they are dropped, and so is a line that
was cut when the process died.
"""

import contextlib
import importlib
import json
from pathlib import Path
from typing import Any, TextIO

from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.files import write_file


class Metrics:
    """A file of lines; without a path nothing is written. `boards` are told of every line too. `losses` are those of
    the steps before, where a run goes on."""

    def __init__(self, path: str, after: int, boards: tuple["Board", ...] = ()) -> None:
        self.file: TextIO | None = None
        self.path, self.boards = Path(path), boards
        self.losses: list[float] = []
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
        lines = [line for line in read_metrics(self.path) if line["step"] <= after]
        self.losses = [line["loss"] for line in lines if isinstance(line.get("loss"), float)]
        write_file(self.path, "".join(json.dumps(line) + "\n" for line in lines), "The file of metrics")

    def write(self, line: dict[str, Any]) -> None:
        """Add one line, at once."""
        numbers = {name: float(value) for name, value in line.items() if name != "step" and value is not None}
        try:
            for board in self.boards:
                board.write(line["step"], numbers)
            if self.file is None:
                return
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()
        except OSError as error:
            raise Infeasible(
                f"Metrics cannot be written to {shorten(str(self.path), 200)}: {error.strerror or error}."
            ) from None

    def close(self) -> None:
        """Close the file and the boards."""
        for one in (*self.boards, self.file):
            with contextlib.suppress(OSError):
                if one is not None:
                    one.close()


class Board:
    """A page of curves, by a package of its own: `tensorboard` in a folder, or Weights & Biases (`wandb`) under the
    name of a project, in a run that stays on this machine until `wandb sync` sends it."""

    def __init__(self, package: str, name: str, folder: str, about: dict[str, Any]) -> None:
        try:
            module = importlib.import_module("wandb" if package == "wandb" else "tensorboard.summary")
        except ImportError:
            raise InputError(f"To log to {package} it must be installed: pip install {package}.") from None
        Path(folder).mkdir(parents=True, exist_ok=True)
        run: Any = module.init(project=name, dir=folder, config=about, mode="offline") if name else None
        self.page = run or module.Writer(folder)
        self.close = self.page.finish if run else self.page.close

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """The numbers of a step."""
        if hasattr(self.page, "log"):
            self.page.log(numbers, step=step)
            return
        for name, value in numbers.items():
            self.page.add_scalar(name, value, step=step)
        self.page.flush()


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
