"""Alternating updates, as Gemma 3n has them, as lines of a program."""

from dataclasses import dataclass

from dragonscale.models.component import Written


@dataclass(frozen=True)
class AltUp(Written):
    """What a layer does beside attention and MLP: a low-rank detour (`laurel`), `streams` copies of the stream of which
    it works on one, predicting and correcting the others, and an input of its own of `width`."""

    streams: int
    laurel: int
    width: int

    @property
    def dims(self) -> dict[str, int]:
        streams = self.streams
        return {"an": streams, "an2": streams, "aa": streams**2, "lr": self.laurel, "pl": self.width}
