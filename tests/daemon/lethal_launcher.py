"""The `streamdp` command with a record that it does not survive, as LETHAL says: one whose key holds `lethal`.

A spawned process runs this file again (as `__mp_main__`), so the trials of `streamdp journal skip` meet it too.
`kill` and `memory` strike when the record is decoded, `read` when what holds it is read, `trial` in every trial. `wait`
hangs, so that a test can kill the process there; the file that WAITING_FILE names says that it does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from streamdp.cli import main
from streamdp.ingest import decoder
from streamdp.transport import file_reader

_how = os.environ.get("LETHAL", "")
_users_of_keys, _decode_frames = decoder.users_of_keys, file_reader.decode_frames


def _strike() -> None:
    if _how == "memory":
        bytearray(1 << 50)
    if _how == "wait":
        Path(os.environ["WAITING_FILE"]).touch()
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)


def _users(keys: Any) -> Any:
    if _how in ("kill", "memory", "wait") and b"lethal" in bytes(keys.content()):
        _strike()
    return _users_of_keys(keys)


def _frames(frames: Any, *name: Any) -> Any:
    if _how == "read" and any(b"lethal" in bytes(frame.body) for frame in frames):
        _strike()
    return _decode_frames(frames, *name)


if _how == "trial" and __name__ == "__mp_main__":
    _strike()

decoder.users_of_keys, file_reader.decode_frames = _users, _frames

if __name__ == "__main__":
    sys.exit(main())
