"""What is left out before it is imported."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Schemathesis takes six seconds to import, and all of its tests are slow; test_http.py has a small one of its
    kind."""
    return (collection_path.name == "test_http_schema.py" and config.option.markexpr == "not slow") or None
