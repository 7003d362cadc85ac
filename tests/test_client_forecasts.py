"""What a subscriber of `auto` gets between releases."""

from __future__ import annotations

from contextlib import closing

import numpy as np
from test_client import SEX, Publisher

from streamdp.client import latest, subscribe
from streamdp.engine import CountsLoaded
from streamdp.transport.filelog import FileLog


def test_a_forecast_is_new_to_a_subscriber_and_says_what_it_is(tmp_path):
    with closing(Publisher(tmp_path / "log", views=(SEX,), horizon=300, kind="auto")) as publisher:
        for point in range(150):
            publisher.engine.handle(CountsLoaded("sex", np.array([5_000 + 40 * point, 9_000])))
            publisher.points()
        updates = list(subscribe(publisher.log, "clinic", from_beginning=True, follow=False))
        newest = latest(publisher.log, "clinic")["sex"]
    forecasts = [update for update in updates if update.kind == "forecast"]
    assert len(updates) == 150 and len(forecasts) > 10
    for update in forecasts:
        release = update.release
        assert update.is_new and release.kind == "forecast" and release.epsilon == 0 and release.age == 0
        assert release.time_point == update.time_point and release.range_count().drift_included
    assert not any(update.release.kind == "forecast" for update in updates if update.kind == "release")
    held = updates[-1].release
    assert (newest.release_id, newest.kind, newest.age) == (held.release_id, held.kind, held.age)
    # A late subscriber begins with what stands, whatever it is.
    with closing(FileLog(tmp_path / "log", durable=False)) as log:
        (first,) = subscribe(log, "clinic", follow=False)
    assert first.kind == ("forecast" if held.kind == "forecast" else "release")
