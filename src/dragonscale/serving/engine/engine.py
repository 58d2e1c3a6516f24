"""What a serving engine does around the kernels: how it schedules, what it fuses, what its host costs, what it
reserves.

These few constants are the part of an expectation that is not measured on kernels. There is one set for each engine,
declared with its reasons in `engines.toml`, and the same for every model, chip and row of measurements. They come in
groups (`engine_settings.py`); what an engine takes by itself on a chip is in `launch.py`.

Captured graphs: a decode batch is filled up to the next size that was captured, and beyond the largest there is
none.

Sizes are pairs (up to, multiples of): vLLM's 1, 2, 4, 8, 16, 24 … 256, 272 … 512 are (2, 1), (4, 2), (8, 4), (256, 8),
(512, 16).

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
    is_file,
    read_settings,
    record_of_file,
    shipped_records,
    spelt,
    with_settings,
)
from dragonscale.plan.settings import on_kind as settings_on_kind
from dragonscale.serving.engine.engine_settings import (
    EngineCollectives,
    EngineExperts,
    EngineHost,
    EngineKernels,
    EngineMemory,
    EngineProgram,
    EngineScheduling,
    ExpertLayout,
    LaunchRow,
)
from dragonscale.tables import file_version


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An engine's constants by group; `why` says where they come from, `base` which engine it starts from, `launch`
    what it takes by default on a chip, `layouts` how it stores experts there, `measured` on which chips they were
    settled on whole steps, and how far off it was on others, `tpu` settings that differ on TPUs
    (`kernels.joined=false`)."""

    name: str = "generic"
    why: str = ""
    base: str = ""
    title: str = ""
    """What people call it."""
    release: str = ""
    """The releases that its constants describe."""
    defaults_release: str = ""
    """The release whose defaults `launch` has, where that is another."""
    kernels: EngineKernels = EngineKernels()
    collectives: EngineCollectives = EngineCollectives()
    experts: EngineExperts = EngineExperts()
    host: EngineHost = EngineHost()
    memory: EngineMemory = EngineMemory()
    program: EngineProgram = EngineProgram()
    scheduling: EngineScheduling = EngineScheduling()
    length_flag: str = ""
    """What its longest request is called in a launch; without it the model's own length is taken. Empty of an engine
    that takes another."""
    checks_length: bool = False
    """Whether it refuses to start where its cache does not hold one request of that length."""
    launch: tuple[LaunchRow, ...] = ()
    layouts: tuple[ExpertLayout, ...] = ()
    measured: tuple[MeasuredOn, ...] = ()
    tpu: tuple[str, ...] = ()

    @property
    def described_release(self) -> str:
        """The release that an answer describes, in words; empty for an engine that is none in particular.

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
"""For bounds: nothing of the host, nothing reserved."""


def adjust(engine: Engine, **groups: Mapping[str, Any]) -> Engine:
    """An engine with some settings changed.

    >>> adjust(load_engine("vllm"), memory={"share": 0.8}).memory.share
    0.8
    """
    return with_settings(engine, groups, f"Engine {shorten(engine.name)} cannot be set like this")


def on_kind(engine: Engine, kind: str) -> Engine:
    """An engine's settings on a kind of chip.

    >>> on_kind(load_engine("jax-program"), "tpu").kernels.plain_flash
    False
    """
    return settings_on_kind(engine, kind, "engine", "kernels.joined=false")


@functools.cache
def engines() -> dict[str, Engine]:
    """The engines that are known, by name; one with a `base` starts from that one's constants, at any depth."""
    return shipped_records("serving.engine", "engines.toml", Engine)


def spelt_engine(text: str) -> str:
    """An engine with its settings as files spell its name, however it is capitalized.

    >>> spelt_engine("vLLM, memory.share=0.85")
    'vllm, memory.share=0.85'
    """
    name, comma, settings = text.partition(",")
    return (name.strip() if is_file(name.strip()) else spelt(name, "engines", engines())) + comma + settings


def substitution_notes(text: str) -> list[str]:
    """That another engine is taken for one that is named, where that is other software.

    >>> substitution_notes("llama.cpp")
    ['llama.cpp was never measured and has no engine here: generic, an idealised engine, is taken for it.']
    >>> substitution_notes("tensorrt-llm"), substitution_notes("vllm")
    ([], [])
    """
    named = text.partition(",")[0].strip()
    if not named or is_file(named) or spelt(named, "engines", engines()) != "generic" or named.lower() == "generic":
        return []
    return [f"{named} was never measured and has no engine here: generic, an idealised engine, is taken for it."]


def split_settings(name: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """A name and the settings after it, by group.

    >>> split_settings("vllm,memory.share=0.85")
    ('vllm', {'memory': {'share': 0.85}})
    """
    name, *settings = (part.strip() for part in name.split(","))
    return name, read_settings(settings)


def load_engine(name: str) -> Engine:
    """An engine by name, without the defaults of any chip, and with settings of the launch if they are given: those of
    its groups, as `validate` has them from the published scripts of each run.

    >>> load_engine("vllm").scheduling.scheduler
    'chunked'
    >>> load_engine("vllm,scheduling.max_sequences=256,memory.share=0.85").scheduling.max_sequences
    256
    """
    name, groups = split_settings(name)
    if name not in engines() and not is_file(name):
        raise unknown("serving engine", name, engines(), "A file of your own ends in .toml.")
    found = _from_file(name, file_version(name)) if is_file(name) else engines()[name]
    return adjust(found, **groups) if groups else found


@functools.lru_cache(maxsize=32)
def _from_file(path: str, _version: tuple[int, ...] | None) -> Engine:
    engine = record_of_file(path, "engine", engines(), "serving engine")
    on_kind(engine, "tpu")  # which tells a wrong setting
    return engine


Sizes = tuple[tuple[int, int], ...]


def filled(batch: Number, sizes: Sizes) -> Number:
    """Rows that a decode step of one rank computes."""
    rows: Number = batch
    for limit, step in reversed(sizes):
        rows = where(batch <= limit, ceil_to(batch, step), rows)
    return rows


def captured(batch: Number, sizes: Sizes) -> Any:
    """Whether there is a graph for so many rows; without sizes there is one for all."""
    return batch <= sizes[-1][0] if sizes else batch >= 0
