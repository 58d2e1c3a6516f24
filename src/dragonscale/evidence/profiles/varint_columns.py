"""Varints at many places of a buffer, decoded at once.

Eight bytes from each place are taken as one word; its lowest byte without the high bit ends the varint, and the seven
bits of each byte are pushed together in three steps. The few that are longer than eight bytes (negative numbers have
ten) get their last bytes one by one.
"""

import numpy as np

PADDING = 24
"""Bytes to have behind a buffer, so that a word can be taken anywhere in it."""
_HIGH = np.uint64(0x8080808080808080)
_ONES = np.uint64(0x0101010101010101)
_STEPS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ONE, _LAST, _SEVEN = np.uint64(1), np.uint64(56), np.uint64(0x7F7F7F7F7F7F7F7F)


class Words:
    """A buffer as bytes, and as the word that begins at each byte.

    >>> words = Words(bytes([0x96, 0x01, 0x07]) + b"\\xff" * 9 + b"\\x01")
    >>> values, ends = words.varints(np.array([0, 2, 3]))
    >>> values.tolist(), ends.tolist()
    ([150, 7, -1], [2, 3, 13])
    """

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(PADDING)
        self.raw = np.frombuffer(padded, np.uint8)
        # Copied once: a word at every byte overlaps its neighbours, and gathering from such a view would copy all of it
        # each time.
        self.words = np.ndarray((len(padded) - 8,), "<u8", padded, strides=(1,)).copy()

    def varints(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The varints that begin at places, as int64, and where they end."""
        word = self.words[at]
        ending = ~word & _HIGH
        lowest = ending & (~ending + _ONE)
        within = (lowest << _ONE) - _ONE
        size = ((within & _ONES) * _ONES) >> _LAST
        value = word & within & _SEVEN
        for low, high, shift in _STEPS:
            value = (value & low) | ((value & high) >> shift)
        ends = at + size.astype(np.int64)
        long = np.flatnonzero(lowest == 0)
        if len(long):
            self._finish(at, long, value, ends)
        return value.view(np.int64), ends

    def _finish(self, at: np.ndarray, long: np.ndarray, value: np.ndarray, ends: np.ndarray) -> None:
        ninth, tenth = self.raw[at[long] + 8].astype(np.uint64), self.raw[at[long] + 9].astype(np.uint64)
        is_longest = ninth >= 0x80
        value[long] |= ((ninth & np.uint64(0x7F)) << _LAST) | (
            np.where(is_longest, tenth & _ONE, 0).astype(np.uint64) << np.uint64(63)
        )
        ends[long] += np.where(is_longest, 2, 1)
        # What is taken for a varint here may be something else, so one that is too long is no error yet; as a length or
        # a name it fits nothing.
        value[long[is_longest & (tenth >= 0x80)]] = ~np.uint64(0)

    def hashes(self, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        """A number for the bytes at each place, equal where the bytes are."""
        found = size.astype(np.uint64) * _MIX
        going = np.flatnonzero(size > 0)
        done = 0
        while len(going):
            left = np.minimum(size[going] - done, 8).astype(np.uint64)
            word = self.words[at[going] + done]
            word &= np.where(left == 8, ~np.uint64(0), (_ONE << (left << np.uint64(3))) - _ONE)
            mixed = (found[going] ^ word) * _MIX
            found[going] = mixed ^ (mixed >> np.uint64(31))
            done += 8
            going = going[size[going] > done]
        return found
