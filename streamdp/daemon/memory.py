"""Giving memory back to the system while the daemon runs."""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable

EVERY_SECONDS = 5.0
# Of malloc.h, and what they are set to: blocks from here on go straight back to the system when freed, and so many
# heaps serve all threads.
_MMAP_THRESHOLD, _LARGE = -3, 1 << 20
_ARENA_MAX, _HEAPS = -8, 2


class Memory:
    """Keeps the process as large as what it uses.

    Batches of input come and go on several threads. What refers to itself, as an error does by its frames, keeps what
    it holds until the collector comes by, which it does ever less often; and glibc keeps what is freed in heaps of the
    threads, where a small block still in use holds back its neighbours. At full speed the process grew for as long as
    it ran, although what it used did not. (Other C libraries than glibc are left alone.)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = clock() + EVERY_SECONDS
        gc.freeze()  # What is there now stays: no need to look at it every time.
        library = ctypes.CDLL(None)
        self._trim = getattr(library, "malloc_trim", None)
        if self._trim is not None:
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
            library.mallopt(_ARENA_MAX, _HEAPS)

    def give_back(self) -> bool:
        """Call it often: it does something every few seconds, and says whether it did."""
        if self._clock() < self._next:
            return False
        gc.collect()
        if self._trim is not None:
            self._trim(0)
        self._next = self._clock() + EVERY_SECONDS
        return True
