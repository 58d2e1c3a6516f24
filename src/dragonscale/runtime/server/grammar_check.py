"""Whether a grammar can be used, found out beside the event loop and beside the engines.

One that a client sends may take minutes, or all memory, to be built, and a thread that does so cannot be stopped. So
grammars are tried in a process (`grammar_process`) that is killed after a time; engines build only those that passed.
A client has few in the queue before it, so that whoever sends slow ones waits for itself.
"""

import asyncio
import signal
import socket
import subprocess
import sys
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection

import msgspec

from dragonscale.runtime.server.grammar_process import Vocabulary
from dragonscale.runtime.server.protocol import ApiError

TIME_S = 20.0
"""Seconds that a grammar may take on a machine that is busy with other things; the process ends itself after fewer
seconds of a core (`grammar_process.CORE_S`)."""
START_S = 120.0
"""Seconds for the process to read the vocabulary."""
WAITING = 4
"""Grammars of a client that wait to be tried."""
KNOWN = 256
"""Grammars of which is remembered what came of them."""


@dataclass(frozen=True)
class GrammarTrial:
    """What came of trying a grammar: what is wrong with it (empty where nothing is), whether the same would come of
    trying it again, and whether the process died of something else than its limit of time."""

    fault: str
    lasting: bool = True
    died: bool = False


class GrammarChecker:
    """Tries grammars, one at a time. The process starts with the first one."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._thread = ThreadPoolExecutor(1, "grammars")
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._waiting: Counter[str] = Counter()
        self._closed = False

    async def check(self, grammar: tuple[str, str], client: str) -> None:
        """Raise an `ApiError` for a grammar that cannot be used, or not now."""
        if not self._vocabulary.ends:
            raise ApiError(400, "The tokenizer has no end of a text, so output cannot be held to a grammar.")
        fault = self._known.get(grammar)
        if fault is None:
            fault = await self._wait(grammar, client)
        if fault:
            raise ApiError(400, fault)

    async def _wait(self, grammar: tuple[str, str], client: str) -> str:
        """What is wrong with a grammar, once it was this client's turn."""
        if self._waiting[client] >= WAITING:
            said = f"{WAITING} grammars that you sent wait to be read already; try again after 1 s."
            raise ApiError(429, said, retry_after=1)
        self._waiting[client] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._try, grammar)
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]

    def close(self) -> None:
        """End the process, whatever it does."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        self._thread.submit(self._end)
        self._thread.shutdown()

    # On the thread

    def _try(self, grammar: tuple[str, str]) -> str:
        """What is wrong with a grammar, and nothing where nothing is; remembered where it is the grammar's fault."""
        if grammar in self._known:  # tried for another request meanwhile
            self._known.move_to_end(grammar)
            return self._known[grammar]
        trial = self._ask(grammar)
        if trial.died:  # perhaps of what others before it left in memory, so it has a process of its own
            trial = self._ask(grammar)
        if trial.lasting:
            self._known[grammar] = trial.fault
            while len(self._known) > KNOWN:
                self._known.popitem(last=False)
        return trial.fault

    def _ask(self, grammar: tuple[str, str]) -> GrammarTrial:
        pipe = self._pipe or self._start()
        died, lasting = False, True
        try:
            pipe.send_bytes(msgspec.msgpack.encode(grammar))
            if pipe.poll(TIME_S):
                return GrammarTrial(pipe.recv_bytes().decode())
            why = f"it takes more than {TIME_S:g} s to read"
            lasting = False  # the machine may be busy with other things
        except (OSError, EOFError):
            code = self._process.wait() if self._process is not None else 0
            why = f"it takes more than {self._vocabulary.core_s} s of a core to read"
            if code != -signal.SIGXCPU:
                why = "it takes too much memory to read"
                died = True
        self._end()
        return GrammarTrial(f"The {grammar[0]} cannot be used as a grammar: {why}.", lasting, died)

    def _start(self) -> Connection:
        """The process, once it has read the vocabulary."""
        local, remote = socket.socketpair()
        with remote:
            command = [sys.executable, "-m", "dragonscale.runtime.server.grammar_process", str(remote.fileno())]
            self._process = subprocess.Popen(command, pass_fds=(remote.fileno(),), stdin=subprocess.DEVNULL, stdout=2)
        self._pipe = Connection(local.detach())
        try:
            self._pipe.send_bytes(msgspec.msgpack.encode(self._vocabulary))
            if self._closed or not self._pipe.poll(START_S):
                raise EOFError
            self._pipe.recv_bytes()
        except (OSError, EOFError):
            self._end()
            raise ApiError(503, "Grammars cannot be read now; the server's log says why.", retry_after=1) from None
        return self._pipe

    def _end(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._pipe = self._process = None
