"""What a journal was begun with and a configuration may not change."""

from __future__ import annotations

import pytest
from harness import Stream

from streamdp.daemon.start import open_journal
from streamdp.daemon.wiring import open_input
from streamdp.privacy.terms import TermsChanged


def test_who_is_a_user_does_not_change_under_a_ledger(tmp_path):
    """Else a person would hold m records by the old name and m by the new one, and a histogram move by both."""
    stream = Stream(tmp_path)
    source = open_input(stream.config)
    open_journal(stream.config, source).close()
    stream.path.write_text(stream.path.read_text().replace("[input]\n", '[input]\nuser = "field:account"\n'))
    with pytest.raises(TermsChanged, match="user is key, not field:account"):
        open_journal(stream.config, source)
    source.close()
