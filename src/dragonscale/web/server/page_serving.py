"""The server as a whole: listens, starts its workers, says when it is ready, and stops without leaving
anything behind."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from dragonscale.errors import InputError
from dragonscale.prompt_http import QUIET, PromptProtocol
from dragonscale.web.server.app import make_app
from dragonscale.web.server.jobs import JobDesk
from dragonscale.web.server.pool import WorkerPool
from dragonscale.web.server.processes import tell
from dragonscale.web.server.settings import PageSettings

GRACE = 2
"""Seconds that answers under way have at the end."""


class PageServer(uvicorn.Server):
    """uvicorn, whose signals are ours: its own handlers raise them again at the end, before anything is cleaned up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(settings: PageSettings) -> socket.socket:
    """The socket; one sentence where the address cannot be had."""
    try:
        where = settings.host, settings.port
        family, *_ = socket.getaddrinfo(*where, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        # asyncio sends small answers at once (TCP_NODELAY) only over sockets that say TCP by their number, and a
        # connection takes that from its listener; otherwise each answer waits 40 ms for an acknowledgement
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
            listener.listen(1024)
        except BaseException:
            listener.close()
            raise
        return listener
    except OverflowError:
        raise InputError(f"--port is {settings.port}; it takes 0 to 65535.") from None
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise InputError(f"--host is {settings.host!r}, which is no address of this machine.") from None
        why = "is in use" if "in use" in str(error) else f"cannot be had ({error.strerror or error})"
        sentence = f"The address {settings.host}:{settings.port} {why}; choose another with --port"
        raise InputError(f"{sentence}, or --port 0 for any that is free.") from None


async def serve_page(
    settings: PageSettings,
    listener: socket.socket,
    ready: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until a signal, or until `stop` is set; `ready` is called once every worker is."""
    stop = stop or asyncio.Event()
    pool, jobs = WorkerPool(settings), JobDesk(settings)
    app = make_app(settings, pool, jobs, tell if settings.log else None)
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        loop="asyncio",
        log_level="critical",
        timeout_keep_alive=int(settings.idle_s),
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=32 << 10,
        limit_concurrency=settings.connections,
        **QUIET | {"proxy_headers": bool(settings.proxy), "forwarded_allow_ips": settings.proxy or None},
    )
    server = PageServer(config)
    with _signals(stop):
        await pool.start()
        tasks = [asyncio.create_task(server.serve(sockets=[listener])), asyncio.create_task(stop.wait())]
        telling = asyncio.create_task(_tell_ready(pool, ready, stop))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            await jobs.close()
            await pool.close()
            await asyncio.gather(tasks[0], return_exceptions=True)
            for task in (tasks[1], telling):
                task.cancel()
            await asyncio.gather(tasks[1], telling, return_exceptions=True)
    if any(worker.hopeless for worker in pool.workers):
        raise InputError("The page's workers cannot be started; the lines above say why.")


async def _tell_ready(pool: WorkerPool, ready: Callable[[], None], stop: asyncio.Event) -> None:
    if await pool.ready():
        ready()
    else:
        stop.set()


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """Stop on Ctrl-C and SIGTERM; in a thread other than the main one, signals are not ours."""
    loop, handled = asyncio.get_running_loop(), []
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(signal_number, stop.set)
            handled.append(signal_number)
    try:
        yield
    finally:
        for signal_number in handled:
            loop.remove_signal_handler(signal_number)
