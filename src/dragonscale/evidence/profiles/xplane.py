"""Profiles of JAX and XProf (`*.xplane.pb`, also gzipped): TPUs, GPUs and XLA's CPU backend.

What stands where:

- A TPU core is a plane; its line `XLA Ops` becomes the device's `ops`. Ops nest there: a `while` or a `conditional` is
  an event that contains the events of
  its body on the same line. They are kept as recorded, so times of a track add up only after what contains others is
  taken out. `Async XLA Ops` (`async`) run beside them: a copy or collective from its start to its end, of which start
  and done are ops of their own. SparseCores are `async` too.
- A GPU is a plane with a line for each CUDA stream: `ops`, or `copies` where a stream only copies, or `async` where it
  only runs NCCL. The file as JAX
  writes it has no line of modules or steps; those that XProf derives later are taken where they are there, its derived
  lines of ops are not (they are the kernels again).
- XLA's CPU backend has no plane: its ops are events of host threads that name an instruction. Each virtual device
  becomes a device, with a track for each thread.
  A loop's event contains its body's there too.
- Steps are a track without a device where `StepTraceAnnotation` marked them on the host (`run` is the step's number).
  The host runs ahead: the device's
  work of a step ends later, except where the program waits.
- `run` of ops and programs is XProf's `run_id`.
- `launched` is the start of the call that asked for it: the CUDA call of a kernel (for kernels of a CUDA graph, the
  launch of the graph), the enqueueing of a TPU's program.
"""

import dataclasses
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from mmap import ACCESS_READ, mmap
from pathlib import Path

from msgspec.structs import replace

from dragonscale.errors import InputError, shorten
from dragonscale.evidence.profiles.hlo_proto import Programs
from dragonscale.evidence.profiles.protobuf import Broken, Buffer
from dragonscale.evidence.profiles.recording import Recorder, Recording
from dragonscale.evidence.profiles.xplane_planes import DevicePlane, HostPlane
from dragonscale.evidence.profiles.xspace import planes, read_plane
from dragonscale.evidence.xla.dumps import opened
from dragonscale.listener import Listener

_MOST_BYTES = 2**31
"""What protocol buffers can hold at most; a gzipped file that unpacks to more is something else."""


def read(path: Path, listener: Listener) -> Recording:
    """The recording in an xplane.pb file."""
    try:
        with _bytes(path) as data:
            return _recording(path.name, data, listener)
    except Broken as error:
        raise InputError(
            f"{shorten(str(path))} is no complete xplane.pb: it has {error}; record or copy it again."
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{shorten(str(path))} cannot be read: {error}.") from None


@contextmanager
def _bytes(path: Path) -> Iterator[Buffer]:
    """The file's bytes, mapped; a gzipped one is unpacked into a temporary file first."""
    with opened(path) as file:
        if not isinstance(file, GzipFile):
            yield _mapped(file.fileno())
            return
        with tempfile.TemporaryFile() as unpacked:
            size = 0
            while piece := file.read(1 << 20):
                size += len(piece)
                if size > _MOST_BYTES:
                    raise Broken("more than two gigabytes unpacked")
                unpacked.write(piece)
            unpacked.flush()
            yield _mapped(unpacked.fileno())


def _mapped(number: int) -> Buffer:
    try:
        return mmap(number, 0, access=ACCESS_READ)
    except ValueError:  # an empty file cannot be mapped
        return b""


def _recording(source: str, data: Buffer, listener: Listener) -> Recording:
    record = Recorder(source, "JAX/XProf")
    found = planes(data)
    programs = Programs()
    for name, span in found:
        if name == "/host:metadata":
            programs.take_all(read_plane(data, name, span))
    devices = [each for each in found if each[0].startswith("/device:")]
    hosts = [each for each in found if each[0].startswith("/host:") and each[0] != "/host:metadata"]
    total = sum(end - start for _, (start, end) in (*devices, *hosts)) or 1
    done = 0
    read_devices: list[DevicePlane] = []
    for name, span in devices:
        one = DevicePlane(read_plane(data, name, span), record, programs)
        for size in one.read():
            done += size
            listener.step(min(done, total), total)
        read_devices.append(one)
    uses_cuda = any(one.kind == "gpu" for one in read_devices)
    for name, span in hosts:
        host = HostPlane(read_plane(data, name, span), record, programs, uses_cuda)
        for size in host.read():
            done += size
            listener.step(min(done, total), total)
        for one in read_devices:
            one.launch(host.calls)
    _sort_devices(record)
    _notes(record, found)
    return dataclasses.replace(record.made(), programs=programs)


def _sort_devices(record: Recorder) -> None:
    """Accelerators first, each kind by its numbers: the threads of a CPU come in any order."""
    devices = record.devices
    order = sorted(range(len(devices)), key=lambda number: (devices[number].kind == "cpu", devices[number].index))
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    record.devices = [devices[number] for number in order]
    record.tracks = [replace(each, device=place[each.device]) for each in record.tracks]
    record.memory = [replace(each, device=place[each.device]) for each in record.memory]


def _notes(record: Recorder, found: "list[tuple[str, tuple[int, int]]]") -> None:
    if not found:
        raise Broken("no planes")
    if not record.devices:
        record.notes.append(
            "The profile holds no device's ops: no plane of a TPU or GPU, and no op of XLA's CPU backend on the "
            "host's threads."
        )
    if record.dropped:
        record.notes.append(f"{record.dropped} events beyond the first {len(record._rows)} were left out.")
