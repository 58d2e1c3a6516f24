"""Expected seconds of kernels that only move bytes, and the least that any kernel takes."""

from dragonscale.physics.kernels.profile import KernelProfile
from dragonscale.physics.numbers import Number


def memory_seconds(size: Number, profile: KernelProfile) -> Number:
    """Seconds of a kernel that reads and writes `size` bytes in all and computes next to nothing.

    >>> from dragonscale.physics.kernels.profile_file import kernel_profile_for
    >>> from dragonscale.physics.hardware import load_chip
    >>> 8e9 / memory_seconds(8e9, kernel_profile_for(load_chip("h200"))) / 4.8e12
    0.8...
    """
    return profile.stream.launch + size / (profile.bandwidth * profile.stream.bandwidth)


def launch_seconds(profile: KernelProfile, kernels: Number = 1) -> Number:
    """Seconds that so many empty kernels take, one after the other inside a graph."""
    return profile.stream.launch * kernels
