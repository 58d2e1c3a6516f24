"""Records that a process remembers, and their names: a second panel of one question costs its own work only.

A server's workers each remember their own. The server gives a question to the worker that has its record, so both name
records alike (`record_key`), and a worker says after each answer which it still has (`Remembered.keys`).
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from dragonscale.web.view_names import OF_FIELDS

Key = TypeVar("Key")
Value = TypeVar("Value")


def record_key(command: str, fields: Mapping[str, Any], dropped: Mapping[str, str], brief: bool = False) -> str:
    """The name of a record: the same in every process.

    >>> asked = {"model": "llama3-8b", "on": "h100:8"}
    >>> record_key("train", asked, {}) == record_key("train", asked | {"plan": ""}, {})
    True
    >>> record_key("train", asked, {}) == record_key("serve", asked, {})
    False
    """
    text = json.dumps([command, given(fields), dict(dropped), brief], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are filled in."""
    return {name: value for name, value in fields.items() if value not in ("", None, [])}


def key_of(request: Mapping[str, Any]) -> str:
    """The name of the record that a request needs; none where its question is not in `fields`, or where it is brief.

    >>> key_of({"view": "compare", "columns": []})
    ''
    """
    view, fields, dropped = request.get("view"), request.get("fields", {}), request.get("dropped", {})
    if view == "why":
        view = request.get("of", "train")
    if view not in OF_FIELDS or request.get("brief") is True:
        return ""
    if not isinstance(fields, Mapping) or not isinstance(dropped, Mapping):
        return ""
    return record_key(view, fields, dropped)


class Remembered(Generic[Key, Value]):
    """What was used last, by its name.

    >>> memory = Remembered[str, str](2)
    >>> for name in "aba":
    ...     memory.put(name, name) if memory.get(name) is None else None
    >>> memory.put("c", "c")
    >>> memory.keys()
    ['a', 'c']
    """

    def __init__(self, max_records: int) -> None:
        self.most = max_records
        self._records: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """What was put, which counts as used; None where it is not remembered."""
        if key in self._records:
            self._records.move_to_end(key)
        return self._records.get(key)

    def put(self, key: Key, record: Value) -> None:
        """Remember it, and drop what was not used for longest."""
        self._records[key] = record
        self._records.move_to_end(key)
        while len(self._records) > self.most:
            self._records.popitem(last=False)

    def keys(self) -> list[Key]:
        """The names of what is remembered."""
        return list(self._records)

    def clear(self) -> None:
        """Forget everything."""
        self._records.clear()
