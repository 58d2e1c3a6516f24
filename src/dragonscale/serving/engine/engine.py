"""A serving engine: how it schedules, which kernels it fuses, what its host costs, how much memory it reserves.

These constants are the part of an expectation that no kernel measurement gives. `engines.toml` declares one set for
each engine, with reasons, for every model, chip and measured row alike. They come in groups (`engine_settings.py`);
`launch.py` has the defaults that an engine chooses on a chip.

Captured graphs (CUDA graphs): a decode batch is padded to the next size that was captured; beyond the largest one,
kernels are launched one by one. Sizes are pairs (up to, multiples of): vLLM's 1, 2, 4, 8, 16, 24 … 256, 272 … 512 are
(2, 1), (4, 2), (8, 4), (256, 8), (512, 16).

>>> vllm = ((2, 1), (4, 2), (8, 4), (256, 8), (512, 16))
>>> [float(filled(batch, vllm)) for batch in (1, 3, 5, 9, 256, 257, 600)]
[1.0, 4.0, 8.0, 16.0, 256.0, 272.0, 600.0]
"""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from dragonscale.errors import shorten, unknown
from dragonscale.physics.numbers import Number, ceil_to, where
from dragonscale.plan.settings import (
    MeasuredOn,
    canonical_name,
    is_file,
    read_settings,
    record_of_file,
    shipped_records,
    with_settings,
)
from dragonscale.plan.settings import on_kind as settings_on_kind
from dragonscale.serving.engine.engine_settings import (
    EngineCollectives,
    EngineExperts,
    EngineHost,
    EngineKernels,
    EngineMemory,
    EngineOffload,
    EngineProgram,
    EngineScheduling,
    ExpertLayout,
    LaunchRow,
)
from dragonscale.tables import file_version


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine's constants by group.

    `why` gives their origin and `base` the engine that they start from. `launch` holds the defaults on a chip,
    `layouts` how experts are stored there, and `tpu` the settings that differ on TPUs (`kernels.joined=false`).
    `measured` lists the chips on which the constants were fitted to whole steps, and the error on others.
    """

    name: str = "generic"
    why: str = ""
    base: str = ""
    title: str = ""
    """Its usual spelling."""
    release: str = ""
    """The releases that its constants describe."""
    defaults_release: str = ""
    """The release of the defaults in `launch`, if it is another."""
    kernels: EngineKernels = EngineKernels()
    collectives: EngineCollectives = EngineCollectives()
    experts: EngineExperts = EngineExperts()
    host: EngineHost = EngineHost()
    memory: EngineMemory = EngineMemory()
    offload: EngineOffload = EngineOffload()
    program: EngineProgram = EngineProgram()
    scheduling: EngineScheduling = EngineScheduling()
    length_flag: str = ""
    """The launch flag for the longest request; an engine that has none takes the model's context length."""
    single_user: bool = False
    """Whether it serves one request at a time unless told otherwise: answers without a batch or a rate are for one."""
    checks_length: bool = False
    """Whether it refuses to start if its cache does not hold one request of that length."""
    launch: tuple[LaunchRow, ...] = ()
    layouts: tuple[ExpertLayout, ...] = ()
    measured: tuple[MeasuredOn, ...] = ()
    tpu: tuple[str, ...] = ()

    @property
    def described_release(self) -> str:
        """The release that an answer describes, in words; empty for an idealised engine.

        >>> load_engine("vllm").described_release
        'vLLM 0.10 to 0.19, launch defaults of 0.32'
        """
        if not self.release:
            return ""
        text = f"{self.title or self.name} {self.release}"
        if self.defaults_release:
            text += f", launch defaults of {self.defaults_release}"
        return text


IDEAL = Engine(
    name="ideal", host=EngineHost(sample_bytes=0.0), memory=EngineMemory(share=1.0, reserve_bytes=0.0, page=1)
)
"""For bounds: the host takes no time, and all of the memory is usable."""


def adjust(engine: Engine, **groups: Mapping[str, Any]) -> Engine:
    """An engine with some settings changed.

    >>> adjust(load_engine("vllm"), memory={"share": 0.8}).memory.share
    0.8
    """
    return with_settings(engine, groups, f"Engine {shorten(engine.name)} cannot be set like this")


def on_kind(engine: Engine, kind: str) -> Engine:
    """The engine with the settings that it has on a kind of chip.

    >>> on_kind(load_engine("jax-program"), "tpu").kernels.plain_flash
    False
    """
    return settings_on_kind(engine, kind, "engine", "kernels.joined=false")


@functools.cache
def engines() -> dict[str, Engine]:
    """All shipped engines by name; one with a `base` starts from that engine's constants, at any depth."""
    return shipped_records("serving.engine", "engines.toml", Engine)


def spelt_engine(text: str) -> str:
    """An engine with settings, its name spelled as in the data files.

    >>> spelt_engine("vLLM, memory.share=0.85")
    'vllm, memory.share=0.85'
    """
    name, comma, settings = text.partition(",")
    name = name.strip()
    if not is_file(name):
        name = canonical_name(name, "engines", engines())
    return name + comma + settings


def split_settings(name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """A name and the settings after it, by group.

    >>> split_settings("vllm,memory.share=0.85")
    ('vllm', {'memory': {'share': 0.85}})
    """
    name, *settings = (part.strip() for part in name.split(","))
    return name, read_settings(settings)


def load_engine(name: str) -> Engine:
    """An engine by name or from a file, with the settings after its name but without the defaults of any chip.

    `validate` passes settings from the published scripts of each run.

    >>> load_engine("vllm").scheduling.scheduler
    'chunked'
    >>> load_engine("vllm,scheduling.max_sequences=256,memory.share=0.85").scheduling.max_sequences
    256
    """
    name, groups = split_settings(name)
    if name not in engines() and not is_file(name):
        raise unknown("serving engine", name, engines(), "A file of your own ends in .toml.")
    engine = _from_file(name, file_version(name)) if is_file(name) else engines()[name]
    return adjust(engine, **groups) if groups else engine


@functools.lru_cache(maxsize=32)
def _from_file(path: str, _version: tuple[int, ...] | None) -> Engine:
    engine = record_of_file(path, "engine", engines(), "serving engine")
    on_kind(engine, "tpu")  # refuses a wrong setting now, not at the first question about a TPU
    return engine


GraphSizes = tuple[tuple[int, int], ...]
"""Captured batch sizes as pairs (up to, multiples of), ascending."""


def filled(batch: Number, sizes: GraphSizes) -> Number:
    """Rows that a decode step of one rank computes: the batch, padded to the next captured size."""
    rows: Number = batch
    # from the largest range down, so that the smallest range that holds the batch decides
    for limit, step in reversed(sizes):
        rows = where(batch <= limit, ceil_to(batch, step), rows)
    return rows


def captured(batch: Number, sizes: GraphSizes) -> Any:
    """Whether a graph was captured for a batch of so many rows; without `sizes` there is one for every batch."""
    return batch <= sizes[-1][0] if sizes else batch >= 0
