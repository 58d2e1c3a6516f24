"""Compiled programs kept from one run to the next, and what XLA's errors say.

Only an allocation that failed means full memory, at a step or while kernels are tried out; `NOT_FOUND: Failed to get
configs` alone means that no kernel was found for an instruction.
"""

import re

import jax

from dragonscale.errors import shorten
from dragonscale.files import user_cache


def keep_compiled() -> None:
    """Let XLA's programs be kept in the user's cache folder, for all of this process, unless JAX was given one."""
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(user_cache("compiled")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


_FULL = ("RESOURCE_EXHAUSTED", "Out of memory")
_ASKED = re.compile(r"(?:allocate|allocating|requested)\D{0,20}([\d.]+)\s*(bytes|[KMGT]iB|[kMGT]B)?", re.IGNORECASE)
_UNITS = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}


def is_full(error: BaseException) -> bool:
    """Whether an error of the devices means that their memory is full."""
    return isinstance(error, jax.errors.JaxRuntimeError) and any(mark in str(error) for mark in _FULL)


def asked_bytes(text: str) -> float:
    """The bytes of an allocation that XLA names in an error; 0 where it names none.

    >>> asked_bytes("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 73014444032 bytes.")
    73014444032.0
    >>> asked_bytes("failed to allocate 68.00GiB (73014444032 bytes) from device") / 2**30
    68.0
    """
    found = _ASKED.search(text)
    if found is None:
        return 0.0
    return float(found[1].rstrip(".")) * _UNITS.get((found[2] or "").lower(), 1)


def asked_words(text: str) -> str:
    """The same as a remark in brackets; nothing of less than 100 MB, which was only the last straw."""
    asked = asked_bytes(text)
    return f" (XLA asked for {asked / 1e9:.1f} GB at once)" if asked > 1e8 else ""


def what_failed(error: BaseException) -> str:
    """An error of XLA that is not about memory, in a sentence.

    >>> what_failed(RuntimeError("INTERNAL: no such kernel.\\nmore"))
    "XLA could not compile or run the program, which is no lack of memory: 'INTERNAL: no such kernel'."
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    said = shorten(lines[0].rstrip("."), 300)
    return f"XLA could not compile or run the program, which is no lack of memory: {said}."
