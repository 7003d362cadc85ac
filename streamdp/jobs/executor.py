"""A process for every job, behind the standard `concurrent.futures.Executor`.

Processes are spawned: the daemon has threads, and a fork of it could hang or hold its locks. A process that dies fails
its own job and no other, and nothing of one job is in memory when the next begins. docs/adr/0008-process-pool.md says
why there is no pool of long-lived workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import queue
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from streamdp.jobs import progress

# How soon a time limit or a stop is noticed.
LOOK_SECONDS = 0.1
_PR_SET_PDEATHSIG = 1
_PROGRESS = struct.Struct("<QQ")
# The libraries under numpy would start a thread for every core in every worker; `workers` says how many cores jobs use.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SPAWN = multiprocessing.get_context("spawn")


class JobFailed(Exception):
    """The job has no result. Whether an error, time or memory was the cause may depend on the data, so nobody is told.

    One constant reason for all of them: that a job failed is then all that its charge has to pay for.
    """


@dataclass(frozen=True)
class Limits:
    """What one job may use: seconds, bytes of memory that it allocates, and its niceness.

    The mapped snapshot does not count: it is as large as the data, and failures must not follow the number of rows.
    """

    seconds: float
    memory_bytes: int
    niceness: int = 10


class JobFuture(Future[bytes]):
    """A future that also knows how far its job is, and can be stopped while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: tuple[int, int] | None = None
        self.stop_asked = threading.Event()

    def stop(self) -> None:
        """Cancel it, or kill its process when it runs."""
        self.stop_asked.set()
        self.cancel()


_Call = tuple[Callable[..., bytes], tuple[Any, ...], dict[str, Any]]


class SpawnExecutor(Executor):
    """Runs functions that return bytes, at most `workers` at a time, each in a new process under `limits`.

    What a function raises stays in its process: an exception's text may quote the data. The future raises `JobFailed`.
    """

    def __init__(self, workers: int, limits: Limits) -> None:
        self._limits = limits
        self._workers = workers
        self._waiting: queue.SimpleQueue[tuple[JobFuture, _Call] | None] = queue.SimpleQueue()
        self._futures: set[JobFuture] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        # multiprocessing looks after all children whenever it starts one; two threads doing so at once would race.
        self._children = threading.Lock()
        for name in _THREADS:
            os.environ.setdefault(name, "1")

    def submit(self, fn: Callable[..., bytes], /, *args: Any, **kwargs: Any) -> JobFuture:  # type: ignore[override]
        if self._closed:
            raise RuntimeError("the pool is shut down")
        future = JobFuture()
        self._futures.add(future)
        future.add_done_callback(lambda done: self._futures.discard(future))
        self._waiting.put((future, (fn, args, kwargs)))
        if len(self._threads) < self._workers:
            thread = threading.Thread(target=self._serve, name=f"job-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """With `cancel_futures`, running jobs are killed too: whoever stops the daemon does not wait for hours."""
        self._closed = True
        if cancel_futures:
            for future in list(self._futures):
                future.stop()
        for _ in self._threads:
            self._waiting.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        """One job after the other. A worker dies with the thread that started it, so the thread stays."""
        # Inherited by the workers: Ctrl-C in a terminal reaches them too, and the daemon decides what becomes of them.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        while (item := self._waiting.get()) is not None:
            future, call = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._run(future, call))
            except JobFailed as failure:
                future.set_exception(failure)
            except Exception:
                future.set_exception(JobFailed())

    def _run(self, future: JobFuture, call: _Call) -> bytes:
        receiver, sender = _SPAWN.Pipe(duplex=False)
        process = _SPAWN.Process(target=_work, args=(sender, os.getpid(), self._limits, call), daemon=True)
        deadline = time.monotonic() + self._limits.seconds
        try:
            with self._children:
                process.start()
            sender.close()
            return _outcome(future, receiver, process.sentinel, deadline)
        finally:
            sender.close()
            receiver.close()
            with self._children:
                if process.pid is not None:
                    process.kill()
                    process.join()
                process.close()


def _outcome(future: JobFuture, receiver: Connection[Any, Any], sentinel: int, deadline: float) -> bytes:
    """What the worker says, until it ends, its time is over or it is stopped."""
    while True:
        ready = wait([receiver, sentinel], timeout=LOOK_SECONDS)
        if future.stop_asked.is_set() or time.monotonic() > deadline:
            raise JobFailed
        if receiver in ready:
            try:
                said = receiver.recv_bytes()
            except (EOFError, OSError):
                raise JobFailed from None
            if said[:1] == b"r":
                return said[1:]
            if said[:1] == b"f":
                raise JobFailed
            future.progress = _PROGRESS.unpack(said[1:])
        elif sentinel in ready:
            raise JobFailed


def _work(sender: Connection[Any, Any], parent: int, limits: Limits, call: _Call) -> None:
    """The life of a worker process."""
    try:
        _restrain(parent, limits)
        progress.listen(lambda done, of: sender.send_bytes(b"p" + _PROGRESS.pack(done, of)))
        function, args, kwargs = call
        said = b"r" + function(*args, **kwargs)
    except BaseException:
        said = b"f"
    with contextlib.suppress(BrokenPipeError):
        sender.send_bytes(said)


def _restrain(parent: int, limits: Limits) -> None:
    # What a library prints (a warning of numpy's, say) depends on the data, and the daemon's log is not as private.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    os.nice(limits.niceness)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
