"""Eight virtual CPU devices for the tests of the runtime.

XLA reads its flags when JAX first looks for devices, so they have to stand in the environment before any test runs.
They are set when this file is read, which is while tests are collected. Kernels are compiled quickly and badly: the
arrays are tiny.
"""

import os
from typing import Any

import pytest

from tests.own_process import virtual_devices

DEVICES = 8


def use_virtual_devices() -> None:
    """Put the flags into the environment, beside those that are there; a number of devices that is there stays."""
    wanted = virtual_devices(DEVICES)
    os.environ.setdefault("JAX_PLATFORMS", wanted["JAX_PLATFORMS"])
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {wanted['XLA_FLAGS']}".strip()


use_virtual_devices()


@pytest.fixture(scope="session")
def eight() -> list[Any]:
    """Eight devices of this process."""
    jax = pytest.importorskip("jax")
    found = jax.devices()
    assert len(found) >= DEVICES, "JAX looked for devices before tests/runtime/conftest.py was read"
    return list(found[:DEVICES])
