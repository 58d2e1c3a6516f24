"""The state on disk: written in the background, seen only when whole, read back onto any mesh.

Orbax writes a checkpoint into a folder with another name and renames it when everything is there, so a process may die
at any moment and the one before is still the newest. Two runs in one folder would delete each other's files, so it is
locked as long as it is open. Beside the state lies what must be the same to go on exactly: seed, data, batch, model,
optimizer.

Numbers of a state look like any others, so a bit that flips on a disk goes unnoticed: a run goes on along another loss
curve. So when all files of a checkpoint are written, in the background and before it gets its name, each is read once
and its SHA-256 kept beside them; before a restore all are compared. Hashing leaves Python to the other threads and runs
at the speed of several cores. A checkpoint without checksums, as earlier versions wrote them, is taken as it is.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy
import orbax.checkpoint as ocp

from dragonscale.errors import Infeasible, InputError, shorten
from dragonscale.files import write_file
from dragonscale.locks import HeldError, lock_folder
from dragonscale.models.program import Program
from dragonscale.runtime.parameters import WeightReader, weights_of

SUMS = "checksums.json"
MARKS = (SUMS, "_CHECKPOINT_METADATA", "commit_success.txt")
"""Not summed: ourselves, and what Orbax writes when a checkpoint gets its name. The state is in none."""
_THREADS = 4


def write_sums(folder: Path) -> None:
    """Keep the checksums of all files in a folder, if they are not kept yet."""
    if not (folder / SUMS).exists():
        sums = _sums(folder, sorted(_names(folder)))
        write_file(folder / SUMS, json.dumps(sums, indent=0) + "\n", "The checksums")


def damaged(folder: Path) -> str:
    """The first file of a folder that is not what was written; empty if all are, or none was kept."""
    try:
        sums = json.loads((folder / SUMS).read_text(encoding="utf-8"))
        names = [*dict[str, str](sums)]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError):
        return SUMS
    return next((name for name, sum_ in _sums(folder, names).items() if sums[name] != sum_), "")


def _names(folder: Path) -> Iterable[str]:
    for place, _, files in os.walk(folder):
        yield from (os.path.relpath(os.path.join(place, name), folder) for name in files if name not in MARKS)


def _sums(folder: Path, names: list[str]) -> dict[str, str]:
    """What each file holds, in short; nothing where it cannot be read."""

    def sum_of(name: str) -> str:
        try:
            with open(folder / name, "rb", buffering=0) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return ""

    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(names, threads.map(sum_of, names), strict=True))


MARGIN = 1.1
"""Free disk wanted over the bytes of a state: names, shapes and the index of a checkpoint are small beside it."""


class Checkpoints:
    """A folder of checkpoints, the newest `keep` of them. `facts` are compared when a run goes on."""

    def __init__(self, folder: str, keep: int, facts: dict[str, Any]) -> None:
        logging.getLogger("absl").setLevel(logging.ERROR)
        self.folder = Path(folder).absolute()
        self.name, self.facts = shorten(str(self.folder), 200), facts
        after = ocp.AsyncOptions(post_finalization_callback=self._keep_sums)
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True, async_options=after)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Before the manager, which deletes what looks unfinished; the first process of a run locks for all of it.
            self.held = lock_folder(self.folder) if jax.process_index() == 0 else None
        except OSError as error:
            raise self._unusable(error) from None
        except HeldError as error:
            which = f" ({error})" if str(error) else ""
            raise InputError(
                f"Another run{which} keeps its checkpoints in {self.name}; wait for it, or give --checkpoints "
                "another folder."
            ) from None
        try:
            self.manager = ocp.CheckpointManager(self.folder, options=options)
        except OSError as error:
            self._let_go()
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> InputError:
        return InputError(f"Checkpoints cannot be kept in {self.name}: {error.strerror or error}.")

    def _let_go(self) -> None:
        if self.held is not None:
            os.close(self.held)
            self.held = None

    @property
    def newest(self) -> int | None:
        """The step of the newest whole checkpoint."""
        return self.manager.latest_step()

    def restore(self, shape: Any) -> Any:
        """The newest state, laid out as `shape` says; refused if it belongs to another run."""
        step = self.newest
        assert step is not None
        self._check(step)
        before = self._read(step, ocp.args.Composite(facts=ocp.args.JsonRestore()))["facts"]
        for name, value in self.facts.items():
            if before.get(name) != value:
                raise InputError(
                    f"The checkpoints in {self.name} are of a run with {name} = {shorten(before.get(name))}, "
                    f"and this one has {shorten(value)}; give another folder, or the settings of that run."
                )
        return self._read(step, ocp.args.Composite(state=ocp.args.StandardRestore(shape)))["state"]

    def _check(self, step: int) -> None:
        """Refuse a checkpoint of which a file is not what was written."""
        wrong = damaged(self.folder / str(step))
        if not wrong:
            return
        before = sorted((one for one in self.manager.all_steps() if one < step), reverse=True)
        good = next((one for one in before if not damaged(self.folder / str(one))), None)
        ask = "there is no good one before it; begin anew in another folder"
        if good is not None:
            bad = " and ".join(str(one) for one in (step, *before) if one > good)
            ask = f"the last good one is of step {good}: delete {bad} to go on from it"
        raise InputError(
            f"The file {shorten(wrong, 120)} of the checkpoint of step {step} in {self.name} is not what was written "
            f"(its checksum differs); {ask}."
        )

    def _keep_sums(self) -> None:
        """Checksums of what is about to get its name, inside its folder, so that both appear at once."""
        if jax.process_index():
            return
        for one in self.folder.iterdir():
            if re.match(r"\d+\b", one.name):
                with contextlib.suppress(OSError, InputError):  # one that is deleted meanwhile needs none
                    write_sums(one)

    def _read(self, step: int, args: Any) -> Any:
        try:
            return self.manager.restore(step, args=args)
        except Exception as error:  # Orbax and TensorStore raise whatever the file system made of it
            raise InputError(
                f"The checkpoint of step {step} in {self.name} cannot be read ({_short(error)}); "
                "delete its folder to go on from the one before."
            ) from None

    def save(self, step: int, state: Any) -> None:
        """Begin to write; the arrays may change as soon as this returns."""
        needed, free = int(own_bytes(state) * MARGIN), self._free()
        if free < needed:
            raise Infeasible(
                f"The disk of {self.name} has {free / 1e9:.3g} GB left and the checkpoint of step {step} "
                f"needs {needed / 1e9:.3g} GB; {self._last()}."
            )
        with self._writing(step):
            both = {"state": ocp.args.StandardSave(state), "facts": ocp.args.JsonSave(self.facts)}
            self.manager.save(step, args=ocp.args.Composite(**both))

    def finish(self, step: int) -> None:
        """Wait until everything that was begun is on disk."""
        with self._writing(step):
            self.manager.wait_until_finished()

    def close(self) -> None:
        """Let go of the folder, whatever became of the last write."""
        with contextlib.suppress(Exception):
            self.manager.close()
        self._let_go()

    def _free(self) -> int:
        return shutil.disk_usage(self.folder).free

    def _last(self) -> str:
        whole = self.manager.all_steps(read=True)
        return f"the last whole one is of step {max(whole)}" if whole else "there is none yet"

    @contextlib.contextmanager
    def _writing(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # as above
            raise Infeasible(
                f"The checkpoint of step {step} could not be written to {self.name} ({_short(error)}); {self._last()}."
            ) from None


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint among those of a run; one that is still written has another name."""
    steps = [int(one.name) for one in folder.iterdir() if one.name.isdigit() and (one / "state").is_dir()]
    return folder / str(max(steps)) if steps else None


def trained_reader(folder: Path, program: Program) -> WeightReader:
    """The weights in the folder of one checkpoint, without the rest of its state; each stack of layers is read once."""
    known = weights_of(program)
    where = shorten(str(folder), 200)

    @cache
    def stack(section: str, name: str) -> Any:
        shape = known[section][name].shape
        item = {"params": {section: {name: jax.ShapeDtypeStruct(shape, numpy.float32)}}}
        plain = {"params": {section: {name: ocp.RestoreArgs(restore_type=numpy.ndarray)}}}
        wanted = ocp.args.PyTreeRestore(item, restore_args=plain, partial_restore=True)
        try:
            with ocp.PyTreeCheckpointer() as reader:
                found = reader.restore(folder.absolute() / "state", args=wanted)["params"][section][name]
        except Exception as error:  # as above
            raise InputError(f"The weight {name} of {section} cannot be read from {where} ({_short(error)}).") from None
        if found.shape != shape:
            raise InputError(
                f"The weight {name} of {section} in {where} has the shape {found.shape}, not that of this model: "
                f"{shape}."
            )
        return found

    one_at_a_time = threading.Lock()

    def read(section: str, name: str, layer: int) -> Any:
        with one_at_a_time:
            found = stack(section, name)
        return found[layer] if known[section][name].stacked else found

    return read


def own_bytes(state: Any) -> int:
    """Bytes that this process writes: each shard of an array once, by whoever holds its first copy."""
    shards = (shard for leaf in jax.tree.leaves(state) for shard in leaf.addressable_shards)
    return sum(shard.data.nbytes for shard in shards if shard.replica_id == 0)


def _short(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return shorten(text[0] if text else type(error).__name__, 160)
