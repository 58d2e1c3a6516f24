"""One line of JSON for every step, in a file that stays one curve however often the run stopped; the same for
TensorBoard and for Weights & Biases.

When a run resumes from step N, lines after N were of steps that are done again: they are dropped, and so is a line that
was cut when the process died. TensorBoard's event files are records with checksums, each an `Event` message; the few
fields of it that a curve needs are written here, so that no package has to be installed.
"""

import contextlib
import json
import os
import platform
import struct
import time
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.files import write_file


class Metrics:
    """A file of lines; without a path nothing is written. `boards` are told of every line too. `losses` are those of
    the steps before, where a run goes on."""

    def __init__(self, path: str, after: int, boards: tuple["TensorBoard | WeightsAndBiases", ...] = ()) -> None:
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


class TensorBoard:
    """An event file of its own for each start, in one folder; after a restart TensorBoard drops the steps that are done
    again."""

    def __init__(self, folder: str, after: int) -> None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}"
            self.file = open(Path(folder) / name, "ab")  # noqa: SIM115  closed by close()
        except OSError as error:
            raise InputError(
                f"TensorBoard's events cannot be written to {shorten(folder)}: {error.strerror or error}."
            ) from None
        self._event(_field(3, b"brain.Event:2"))
        if after:
            self._event(b"\x10" + _varint(after + 1) + _field(7, b"\x08\x01"))  # a session that starts at a step

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """The numbers of a step."""
        values = (
            _field(1, _field(1, name.encode()) + b"\x15" + struct.pack("<f", one)) for name, one in numbers.items()
        )
        self._event(b"\x10" + _varint(step) + _field(5, b"".join(values)))
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    def _event(self, body: bytes) -> None:
        data = b"\x09" + struct.pack("<d", time.time()) + body
        size = struct.pack("<Q", len(data))
        self.file.write(size + _checksum(size) + data + _checksum(data))


def _varint(value: int) -> bytes:
    """A whole number as Protocol Buffers write it, seven bits in a byte."""
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def _field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(body)) + body


@cache
def _crc_table() -> list[int]:
    def shifted(value: int) -> int:
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        return value

    return [shifted(byte) for byte in range(256)]


def _checksum(data: bytes) -> bytes:
    """CRC-32C (Castagnoli), rotated and shifted as TFRecord has it.

    >>> _checksum(b"123456789") == struct.pack("<I", ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) % 2**32)
    True
    """
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) % 2**32 + 0xA282EAD8) % 2**32)


class WeightsAndBiases:
    """A run of a project that stays on this machine, until `wandb sync` sends it."""

    def __init__(self, project: str, folder: str, config: dict[str, Any]) -> None:
        try:
            import wandb  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise InputError("To log to Weights & Biases wandb must be installed: pip install wandb.") from None
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.run: Any = wandb.init(project=project, dir=folder, config=config, mode="offline")

    def write(self, step: int, numbers: dict[str, float]) -> None:
        """The numbers of a step."""
        self.run.log(numbers, step=step)

    def close(self) -> None:
        self.run.finish()


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
