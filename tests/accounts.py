"""Numbers of many cases in a file, by name, and how a case is held against it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

Account = dict[str, dict[str, Any]]
DIGITS = 7


def read_account(path: Path, name: str) -> Any:
    """What a file has for a case."""
    return json.loads(path.read_text(encoding="utf-8")).get(name)


def write_accounts(path: Path, accounts: Mapping[str, Any]) -> None:
    """Write all cases, a line for each part of one."""
    cases = []
    for name, account in accounts.items():
        parts = ",\n".join(f"  {json.dumps(part)}: {json.dumps(rounded(value))}" for part, value in account.items())
        cases.append(f"{json.dumps(name)}: {{\n{parts}\n}}")
    path.write_text("{\n" + ",\n".join(cases) + "\n}\n", encoding="utf-8")


def rounded(value: Any) -> Any:
    """Numbers with as many digits as are compared."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(part) for part in value]
    if isinstance(value, str) or value is None:
        return value
    return float(f"{float(value):.{DIGITS}g}")


def assert_equal(found: Any, expected: Any, where: str) -> None:
    """Compare part by part; numbers to six digits."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), where
        for name, part in expected.items():
            assert_equal(found[name], part, f"{where}: {name}")
    elif isinstance(expected, list):
        assert rounded(found) == pytest.approx(expected, rel=1e-6, abs=1e-30), where
    else:
        assert rounded(found) == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-6)), where
