"""Compiling apart: a process of its own with its own environment, limited in time and memory, and a cache of what it
found.

JAX and the compilers read their environment once, and XLA stops the whole process where it finds itself in the wrong,
so a compile never runs in the caller's process. `DRAGONSCALE_COMPILER_PYTHON` names another Python to compile with,
such as one of a virtual environment that has `libtpu`.
"""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import msgspec

from dragonscale.errors import InputError
from dragonscale.evidence.verify.records import Made, Request
from dragonscale.evidence.xla import gpu_target, tpu_target
from dragonscale.files import user_cache, write_file
from dragonscale.installing import install_hint
from dragonscale.models import load_model
from dragonscale.physics.hardware import parse_slice

PYTHON = "DRAGONSCALE_COMPILER_PYTHON"


def compile_apart(request: Request, timeout: float = 900.0, memory: float = 8e9, cached: bool = True) -> Made:
    """What the compiler makes of a request; from the cache if this project, and the compilers, were the same then."""
    check_installed(request)
    path = user_cache("verify") / f"{request.key}-{_program_key(request)}.json"
    if cached and path.exists():
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):  # a spoilt entry is made anew
            return msgspec.json.decode(path.read_bytes(), type=Made)
    made = _run(request, timeout, memory)
    if made.failed:
        return made  # perhaps not the next time
    with contextlib.suppress(OSError, InputError):  # a cache that cannot be written is no reason to fail
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, msgspec.json.encode(made), "The cache")
    return made


def _program_key(request: Request) -> str:
    """Changes whenever the compilers, the code that makes and reads programs, or what the request names
    do: a path says nothing of what is in its file."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    made_by = ("runtime", "evidence/xla", "evidence/verify", "models", "physics", "plan", "training", "serving")
    for folder in made_by:
        for path in sorted(path for path in (root / folder).rglob("*") if path.suffix in (".py", ".toml")):
            digest.update(path.read_bytes())
    chip = parse_slice(request.slice).chip
    digest.update(f"{asdict(load_model(request.model))} {asdict(chip)}".encode())
    digest.update(_config(request.model))
    names = ("jax", "jaxlib", "jax-cuda12-pjrt" if chip.kind == "gpu" else "libtpu")
    digest.update(repr([_version(name) for name in names]).encode())
    digest.update(os.environ.get(PYTHON, "").encode())
    return digest.hexdigest()[:12]


def _config(model: str) -> bytes:
    """A user's own config: it says things that the program is made with and the model does not keep."""
    path = Path(model)
    with contextlib.suppress(OSError, ValueError):
        path = path / "config.json" if path.is_dir() else path
        if path.suffix.lower() in (".json", ".toml") and path.is_file():
            return path.read_bytes()
    return b""


def _version(name: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""


def check_installed(request: Request) -> None:
    """Say what to install where the compiler that a request needs is missing."""
    if os.environ.get(PYTHON):
        return
    chip = parse_slice(request.slice).chip
    if chip.kind == "gpu":
        if not _found("jax_plugins") or not _found("jax_plugins.xla_cuda12"):
            how = install_hint("gpu-compiler")
            raise InputError(f"Verifying for GPUs needs XLA's GPU compiler, but no GPU: {how}")
    elif not _found("libtpu"):
        machine = platform.machine()
        if machine not in ("x86_64", "AMD64"):
            raise InputError(
                "Verifying for TPUs needs XLA's TPU compiler, which exists for x86-64 Linux only; this machine is "
                f"{machine}."
            )
        raise InputError(f"Verifying for TPUs needs XLA's TPU compiler, but no TPU: {install_hint('tpu')}")


def _found(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _environment(request: Request) -> dict[str, str]:
    if parse_slice(request.slice).chip.kind == "tpu":
        return tpu_target.ENVIRONMENT
    flags = gpu_target.GPU if request.mode == "canonical" else ("--xla_gpu_autotune_level=0",)
    return {**gpu_target.ENVIRONMENT, "XLA_FLAGS": " ".join(flags)}


def _run(request: Request, timeout: float, memory: float) -> Made:
    command = [os.environ.get(PYTHON) or sys.executable, "-m", "dragonscale.evidence.verify.worker"]
    environment, pipe = os.environ | _environment(request), subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
    done, exceeded = threading.Event(), threading.Event()
    watch = threading.Thread(target=_watch, args=(process, memory, done, exceeded), daemon=True)
    watch.start()
    try:
        output, notes = process.communicate(msgspec.json.encode(request), timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise InputError(
            f"XLA was still compiling after {timeout:.0f} s; give it more with --timeout, or take a smaller program."
        ) from None
    finally:
        done.set()
        watch.join(timeout=2)
    if exceeded.is_set():
        limit = f"{memory / 1e9:.0f} GB of this machine's memory"
        raise InputError(f"XLA took more than {limit}; give it more with --memory.")
    said = notes.decode("utf-8", "replace").strip()
    if process.returncode == 3 and "dragonscale: " in said:
        raise InputError(said.rpartition("dragonscale: ")[2])
    if process.returncode < 0:
        return Made({}, 0.0, 0.0, failed=f"XLA stopped on a failed check of its own: {said[-1500:]}")
    if process.returncode:
        raise InputError(f"The compiling process failed (exit {process.returncode}): {said[-1500:]}")
    return msgspec.json.decode(output, type=Made)


def _watch(process: "subprocess.Popen[bytes]", most: float, done: threading.Event, exceeded: threading.Event) -> None:
    """End a process that grows beyond a limit."""
    path = Path(f"/proc/{process.pid}/statm")
    while not done.wait(0.5):
        try:
            resident = int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return
        if resident > most:
            exceeded.set()
            process.kill()
            return
