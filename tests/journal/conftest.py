from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_samples import open_journal

from streamdp.journal import Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "visits.journal"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    with open_journal(path) as opened:
        opened.reserve("ages", "0.5", "dsat_w C=5")
        yield opened
