"""An HLO text as a recording: the programs, and no events, because nothing was timed.

What a program does on each device (FLOPs, bytes, collectives) is all there; when it did it is not. The analysis of such
a recording is static: the bound of each op on a chip instead of its time.
"""

from pathlib import Path

from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.evidence.xla.dumps import read_dump_file
from dragonscale.listener import Listener


def read(path: Path, listener: Listener) -> Recording:
    """The modules of a dump, by name; of several with one name the last keeps it."""
    listener.wait(f"Reading {path.name}.")
    record = Recorder(path.name, "XLA HLO")
    dumps = read_dump_file(path)
    for place, dump in enumerate(dumps):
        record.programs[dump.name or f"module {place}"] = dump.module
    first = dumps[0]
    record.device("", {"tpu": "tpu", "gpu": "gpu", "cpu": "cpu"}.get(first.platform, ""))  # pyright: ignore[reportArgumentType]
    record.notes.append("This is a program's text: it has no times, only what the program does.")
    if not first.optimized:
        record.notes.append("The program is not compiled yet: XLA will fuse, lay out and may split it otherwise.")
    return record.made()
