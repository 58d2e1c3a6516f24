"""What differs between two answers, by the path of each value.

>>> list(differences({"plans": [{"step_s": 1.0}]}, {"plans": [{"step_s": 2.0}]}, 1e-9))
['.plans[0].step_s: 1.0 -> 2.0']
>>> list(differences({"a": 1.0, "b": [1]}, {"a": 1.0 + 1e-12, "b": []}, 1e-9))
['.b: 1 items -> 0']
"""

import difflib
import math
from collections.abc import Iterator
from typing import Any


def differences(old: Any, new: Any, tolerance: float, path: str = "") -> Iterator[str]:
    """Paths whose values differ; numbers by more than `tolerance` of themselves, 0 looks at the order of keys too."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if key not in new or key not in old:
                yield f"{path}.{key}: {'gone' if key in old else 'new'}"
            else:
                yield from differences(old[key], new[key], tolerance, f"{path}.{key}")
        if not tolerance and list(old) != list(new) and set(old) == set(new):  # JSON has no order; `--exact` looks
            yield f"{path}: another order of keys"
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{path}: {len(old)} items -> {len(new)}"
            return
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, tolerance, f"{path}[{index}]")
    elif isinstance(old, str) and isinstance(new, str):
        yield from (f"{path}: {line}" for line in _changed_lines(old, new))
    elif isinstance(old, float | int) and isinstance(new, float | int) and not isinstance(old, bool):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=0.0):
            yield f"{path}: {old} -> {new}"
    elif old != new:
        yield f"{path}: {_short(old)} -> {_short(new)}"


def _changed_lines(old: str, new: str) -> Iterator[str]:
    if old != new:
        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
        yield from (_short(line) for line in lines if not line.startswith(("---", "+++", "@@")))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 160 else text[:157] + "…"
