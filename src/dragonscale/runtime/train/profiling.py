"""Steps of a run recorded by JAX's profiler, after those that warm up."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import jax

from dragonscale.errors import InputError, shorten

WARM = 2
"""Steps before the first that is recorded: the first compiles, the next may still wait for it."""


@dataclass
class StepProfiler:
    """Records `steps` steps of a run into a folder. `recorded` are the first and the last of them,
    once there are any."""

    folder: str
    steps: int
    recorded: tuple[int, int] | None = None
    _done: int = 0
    _running: bool = field(default=False, init=False)

    @contextmanager
    def around(self, number: int) -> Iterator[None]:
        """What is done for one step: everything up to its metrics being known on the host."""
        if self._done == WARM:
            self._start()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            yield
        self._done += 1
        if self._running:
            self.recorded = (self.recorded[0] if self.recorded else number, number)
            if self._done == WARM + self.steps:
                self.stop()

    def _start(self) -> None:
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every Python call would be an event, and slow the host down
        try:
            Path(self.folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"A profile cannot be written to {shorten(self.folder)}: {error.strerror}.") from None
        jax.profiler.start_trace(self.folder, profiler_options=options)
        self._running = True

    def stop(self) -> None:
        """End the recording, if it runs."""
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
