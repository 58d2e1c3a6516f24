"""A process that compiles one request and says what it found: a `Request` as JSON on stdin, a `Made` on stdout."""

import os
import resource
import sys
import time

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.verify.request import Made, Request
from dragonscale.evidence.xla import tpu_target
from dragonscale.evidence.xla.compiled import read_compiled
from dragonscale.evidence.xla.memory import DEVICE, parse_oom
from dragonscale.files import write_file
from dragonscale.physics.hardware import parse_slice


def versions(request: Request) -> dict[str, str]:
    """The versions of everything that decides what a compiler makes of a program."""
    import importlib.metadata

    names = ["jax", "jaxlib"]
    names += ["jax-cuda12-pjrt"] if parse_slice(request.slice).chip.kind == "gpu" else ["libtpu"]
    return {name: importlib.metadata.version(name) for name in names}


def compile_request(request: Request) -> Made:
    """Lower, compile, read."""
    import jax

    from dragonscale.evidence.verify.program import lower, mesh_sizes

    jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/(?=dragonscale/)")
    piece = parse_slice(request.slice)
    canonical = tpu_target.CANONICAL if piece.chip.kind == "tpu" and request.mode == "canonical" else {}
    start, known = time.monotonic(), versions(request)
    lowered = lower(request)
    try:
        compiled = lowered.compile(compiler_options={**canonical, **request.options} or None)
    except jax.errors.JaxRuntimeError as error:
        full = parse_oom(str(error))
        failed = str(error)[:2000] if full is None else ""
        return Made(known, time.monotonic() - start, _resident(), out_of_memory=full, failed=failed)
    text, memory = compiled.as_text(), compiled.memory_analysis()
    numbers = {name: int(getattr(memory, name)) for name in DEVICE}
    if folder := os.environ.get("DRAGONSCALE_KEEP_HLO"):
        write_file(f"{folder}/{request.key}.hlo", text, "The compiled module")
    found = read_compiled(text, numbers, mesh_sizes(request))
    return Made(known, time.monotonic() - start, _resident(), compiled=found)


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    """Answer the request on stdin; a mistake in it is said on stderr, in one sentence."""
    try:
        made = compile_request(msgspec.json.decode(sys.stdin.buffer.read(), type=Request))
    except InputError as error:
        sys.stderr.write(f"dragonscale: {error}\n")
        raise SystemExit(3) from None
    sys.stdout.buffer.write(msgspec.json.encode(made))


if __name__ == "__main__":
    main()
