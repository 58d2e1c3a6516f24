"""A verification for a person who waits: refused in a sentence where a compiler is missing, silent while libraries
load.

JAX's plugins greet every start with lines about missing drivers, written by C++ past Python's own stderr. They are held
back, and shown only where loading fails.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator

from dragonscale.evidence.verify.compiling import check_installed
from dragonscale.evidence.verify.records import VerifyReport
from dragonscale.evidence.verify.request import Request


def verify_quietly(
    request: Request, timeout: float, memory: float, cached: bool, stack: str = "dragonscale"
) -> VerifyReport:
    """Compile a request apart and lay what came out beside its plan."""
    check_installed(request)
    with quiet_stderr():
        from dragonscale.evidence.verify.comparing import verify
    return verify(request, timeout, memory, cached, stack)


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2; write it after all if the block raises.

    >>> with quiet_stderr():
    ...     _ = os.write(2, b"Could not find cuda drivers")
    """
    try:
        own = os.dup(2)
    except OSError:  # there is no stderr to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(own, 2)
            held.seek(0)
            os.write(2, held.read())
            raise
        finally:
            os.dup2(own, 2)
            os.close(own)
