"""Logs: one JSON object a line on stderr, or plain text on a terminal.

A line says what happened, with public quantities only: never a payload, a key, a count of records, an input offset.
Fields are passed as `extra={"fields": {...}}`, so that the JSON form keeps them apart from the text.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The type only: an exception's text may quote what it choked on.
            line["exception"] = record.exc_info[0].__name__
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        return f"{when} {record.levelname.lower():7} {record.getMessage()}{'  ' + fields if fields else ''}"


def set_up(level: str = "info") -> None:
    """Sends the log to stderr, as text on a terminal and as JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def write_now(level: int, message: str) -> None:
    """One record, past all locks and buffers: for a signal handler, which may have interrupted another record."""
    record = logging.LogRecord(__name__, level, __file__, 0, message, None, None)
    os.write(2, f"{_formatter().format(record)}\n".encode())


def _formatter() -> logging.Formatter:
    return TextFormatter() if sys.stderr.isatty() else JsonFormatter()
