"""The chips of a question with what is asked to be otherwise about them: `--set hbm=2x`, `--profile mine.toml`.

A kernel profile goes with the chip, as a change to it does: `h200+profile=mine.toml:8` says in an answer's title, in a
saved plan and in a sweep's rows what kernel times rest on. Where none is named and the user's folder has one for the
chip, that is taken, under the name `own`; `--profile built-in` leaves it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragonscale.commands.given import comma_list, targets_of
from dragonscale.errors import InputError, shorten
from dragonscale.physics.hardware import Chip, Slice, load_chip, parse_target
from dragonscale.physics.hardware.catalogue import candidates, is_chip
from dragonscale.physics.hardware.changes import PROFILE, changed_chip, split_changes, with_changes
from dragonscale.physics.hardware.prices import priced_targets
from dragonscale.physics.hardware.slices import slice_note
from dragonscale.physics.kernels.profile_file import OWN, choose, named_profile, own_file, own_folder, profile_files

_UNFIT = re.compile(r"[,+=:*]")


def asked_chips(on: Any, changes: str, profile: str = "") -> Any:
    """What stands after `--on`, with the changes and the profile after every chip.

    >>> asked_chips("h200:8,h100:8", "hbm=2x", "h200")
    'h200+hbm=2x+profile=h200:8,h100+hbm=2x+profile=h200:8'
    """
    # a name of a built-in profile, or the path of one
    word = profile.strip()
    if not word:
        return _with_own(with_changes(on, changes))
    if _UNFIT.search(word):
        raise InputError(f"--profile is {shorten(word)}; the path of a profile has none of , + = : * in it.")
    if isinstance(on, str) and on.strip().lower() in ("", "any", "all"):
        raise InputError(f"--profile is of chips that are named, and --on is {on.strip()!r}; write e.g. --on h200:8.")
    changed = with_changes(on, ",".join(filter(None, (changes, f"{PROFILE}={word}"))))
    _readable(word)
    return changed


def profile_notes(chips: Iterable[Chip]) -> list[str]:
    """That kernel times are those of another chip, where a profile that was named is of another one.

    >>> from dragonscale.physics.hardware import load_chip
    >>> profile_notes([load_chip("a100+profile=h200"), load_chip("h200+profile=h200")])
    ['The profile h200 is of h200, not of a100: its fractions are taken of the datasheet of a100.']
    """
    notes = []
    for chip in chips:
        file = None
        if chip.kernels:
            # profiles are fitted on one kind of chip, and stand for its relatives
            file = named_profile(chip.kernels, chip)
        if file is not None and file.chips and chip.kin not in (*file.chips, *file.stands_for):
            measured = ", ".join(Path(name).stem for name in file.chips)
            family = Path(chip.kin).stem
            notes.append(
                f"The profile {Path(chip.kernels).name} is of {measured}, not of {family}: its fractions are taken of "
                f"the datasheet of {family}."
            )
    return list(dict.fromkeys(notes))


def kin_notes(chips: Iterable[Chip]) -> list[str]:
    """What is assumed of chips, and which of them are promises."""
    notes: list[str] = []
    for chip in chips:
        if chip.assumed:
            notes.append(chip.assumed)
        if chip.announced:
            notes.append(f"{chip.name} is announced and not to be had yet: its numbers are its maker's promises.")
    return list(dict.fromkeys(notes))


def kernels_text(chip: Chip) -> str:
    """Whose kernels stand for those of a GPU that was not measured, for the line about errors; else empty.

    >>> from dragonscale.physics.hardware import load_chip
    >>> kernels_text(load_chip("h100-pcie")), kernels_text(load_chip("a6000")), kernels_text(load_chip("h100"))
    ("h100-pcie's kernels are taken to be as efficient as h100's", "a6000's kernels were not measured", '')
    """
    measured = profile_files()[choose(chip)].chips
    if chip.kind != "gpu" or chip.kernels or chip.kin in measured:
        return ""
    if not measured:
        return f"{chip.kin}'s kernels were not measured"
    return f"{chip.kin}'s kernels are taken to be as efficient as {', '.join(measured)}'s"


# Both words mean every chip of the catalogue.
ANYWHERE = ("any", "all")


def read_targets(on: Any) -> tuple[dict[str, tuple[Chip, Slice | None]], bool]:
    """Chips and slices as they were written, several with commas, and whether all chips of the catalogue were meant.

    >>> targets, everywhere = read_targets("h100:64, v5p")
    >>> [str(piece) for _, piece in targets.values()], everywhere
    (['h100:64', 'None'], False)
    """
    if not isinstance(on, str):
        return targets_of(on if isinstance(on, list | tuple) else [on]), False
    parts = comma_list(on)
    if any(part.lower() in ANYWHERE for part in parts):
        if len(parts) > 1:
            raise InputError(f"--on is {shorten(on)}; 'any' is every chip of the catalogue and stands alone.")
        return {chip.name: (chip, None) for chip in candidates()}, True
    for part in parts:
        # what follows a + is a change of the chip (h100+hbm=2x); another chip there is meant as a second half of the
        # slice
        if any(
            "=" not in part_of_fleet and is_chip(part_of_fleet.partition(":")[0].strip())
            for part_of_fleet in part.split("+")[1:]
        ):
            each = ",".join(map(str.strip, part.split("+")))
            raise InputError(
                f"--on is {shorten(part)}; a slice is of one kind of chip and mixed fleets are not planned: --on "
                f"{each} compares them."
            )
    return {part: parse_target(part) for part in parts or [on]}, False


@dataclass(frozen=True)
class AskedTargets:
    """The chips and slices of a question at their prices, by their names as they were written; whether all chips of the
    catalogue were meant; how names were read, and notes on prices and profiles."""

    named: dict[str, tuple[Chip, Slice | None]]
    everywhere: bool
    read: list[str]
    notes: list[str]

    @property
    def targets(self) -> tuple[tuple[Chip, Slice | None], ...]:
        return tuple(self.named.values())


def asked_targets(on: Any, question: Any) -> AskedTargets:
    """What stands after `--on`, at what `--price`, `--pricing` and `--owned` say."""
    named, everywhere = read_targets(on)
    priced, strange = priced_targets(question.price, named.values(), question.pricing, question.owned)
    notes = [*strange, *profile_notes(chip for chip, _ in priced)]
    if not everywhere:
        notes += kin_notes(chip for chip, _ in priced)
    read = list(filter(None, map(slice_note, named)))
    return AskedTargets(dict(zip(named, priced, strict=True)), everywhere, read, notes)


def _readable(word: str) -> None:
    """A profile that cannot be read is refused at once, in its own sentence."""
    if word != OWN:
        named_profile(word, load_chip("h200"))


def _with_own(on: Any) -> Any:
    """The chips that the user has a profile of, with it."""
    try:
        # nobody has calibrated anything here
        if not own_folder().is_dir():
            return on
    except OSError:
        return on
    if isinstance(on, list | tuple):
        return list(map(_with_own, on))
    if isinstance(on, str):
        return ",".join(map(_named_own, on.split(",")))
    chip = on if isinstance(on, Chip) else getattr(on, "chip", None)
    if not isinstance(chip, Chip) or chip.kernels or own_file(chip) is None:
        return on
    profiled = changed_chip(chip, f"{PROFILE}={OWN}")
    if isinstance(on, Chip):
        return profiled
    return replace(on, chip=profiled)


def _named_own(target: str) -> str:
    try:
        chip, _ = parse_target(target.strip())
    except InputError:
        return target  # which is told where it is read
    if (
        chip.kernels
        or own_file(chip) is None
        or PROFILE in dict(part.split("=", 1) for part in split_changes(chip.name)[1])
    ):
        return target
    return with_changes(target.strip(), f"{PROFILE}={OWN}")
