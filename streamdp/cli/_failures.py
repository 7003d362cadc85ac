"""What a failure that no code foresaw tells a person: one line that says what to do, never a traceback."""

from __future__ import annotations

import errno
import traceback

_FILES: dict[type[OSError], str] = {
    PermissionError: "{name}: permission denied. Run this as the user who owns it, or give yourself the right to it",
    FileNotFoundError: "{name} does not exist. Check the path",
    FileExistsError: "{name} exists already. Choose another name, or move it away",
    IsADirectoryError: "{name} is a directory, and a file is needed. Check the path",
    NotADirectoryError: "{name}: a part of this path is a file, not a directory. Check the path",
}
_NUMBERS = {
    errno.ENOSPC: "{name}: no room on the disk. Free some space and try again",
    errno.EROFS: "{name}: the disk is mounted read-only. Choose another path",
    errno.EMFILE: "too many open files. Raise the limit (ulimit -n) and try again",
}


def explain(error: Exception) -> str:
    """One line. Only what the operating system says is quoted: other texts may hold data."""
    if isinstance(error, OSError) and error.errno is not None:
        name = error.filename if error.filename is not None else "a file or connection"
        text = _NUMBERS.get(error.errno) or _FILES.get(type(error))
        return text.format(name=name) if text else f"{name}: {error.strerror}. Check that it is there and works"
    if isinstance(error, MemoryError):
        return "stopped by MemoryError: there is not enough memory for this. Give it more, or less to do"
    [*_, place] = frames(error) or ["an unknown place"]
    return (
        f"stopped by {type(error).__name__} at {place}. Its text is withheld, because it may quote the data. This is a "
        "defect: please report this line"
    )


def frames(error: BaseException) -> list[str]:
    """Where it happened, the outermost first."""
    return [f"{each.filename}:{each.lineno} in {each.name}" for each in traceback.extract_tb(error.__traceback__)]
