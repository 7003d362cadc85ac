"""Memory goes back to the system: at its times, and really."""

import gc
import subprocess
import sys
import textwrap
import weakref

from streamdp.daemon.memory import EVERY_SECONDS, Memory


def test_it_does_something_now_and_then_only() -> None:
    now = 100.0
    memory = Memory(lambda: now)
    assert not memory.give_back()
    now += EVERY_SECONDS
    assert memory.give_back()
    assert not memory.give_back()
    now += EVERY_SECONDS - 0.1
    assert not memory.give_back()
    now += 0.2
    assert memory.give_back()


def test_what_holds_itself_is_let_go() -> None:
    class Held:
        """Refers to itself, as an error with its traceback does."""

        def __init__(self) -> None:
            self.itself = self

    now = 0.0
    memory = Memory(lambda: now)
    gc.disable()
    try:
        held = weakref.ref(Held())
        assert held() is not None
        now += EVERY_SECONDS
        memory.give_back()
        assert held() is None
    finally:
        gc.enable()
        gc.unfreeze()


def test_what_a_small_block_holds_back_is_given_back() -> None:
    """A hundred megabytes in blocks of 64 KiB, freed but for the last, which keeps the heap from shrinking."""
    program = """
        import ctypes
        from pathlib import Path
        from streamdp.daemon.memory import EVERY_SECONDS, Memory

        def resident():
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024

        now = 0.0
        memory = Memory(lambda: now)
        library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p
        blocks = [library.malloc(65536) for _ in range(1600)]
        for block in blocks:
            ctypes.memset(block, 1, 65536)
        for block in blocks[:-1]:
            library.free(ctypes.c_void_p(block))
        held = resident()
        now += EVERY_SECONDS
        memory.give_back()
        print(held, resident())
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, capture_output=True, text=True)
    held, left = (int(word) for word in run.stdout.split())
    assert left < held - 60, f"{held} MB, then {left} MB"
