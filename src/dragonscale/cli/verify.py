"""The verification below another command's answer, for commands that are not asked by a question yet."""

from collections.abc import Callable
from typing import Any

from dragonscale.cli.progress import Terminal
from dragonscale.cli.show import emit_json


def conclude(report: Any, say_it: Callable[[], None], ask: Callable[[], Any] | None, json: bool) -> int:
    """Print another command's answer and, where `ask` says what to compile, its verification: below the text, or inside the
    JSON as `verification`. Returns the exit code of the verification, 0 without one."""
    from dragonscale.reports.verify.ask import verified

    if ask is None:
        emit_json(report) if json else say_it()
        return 0
    if not json:
        say_it()
        found = verified(ask(), Terminal())
        print(f"\n{found}")
        return found.exit_code
    import msgspec

    found = verified(ask(), Terminal())
    emit_json({**msgspec.to_builtins(report), "verification": found})
    return found.exit_code
