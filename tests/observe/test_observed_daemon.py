"""A real daemon, scraped: who sees what, when it is ready, and that nothing unreleased is on a public surface."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from fractions import Fraction

import pytest
from observed import Observed, get, names, running, samples, submit
from waiting import PATIENCE, until

from streamdp import messages
from streamdp.config.observe import Address
from streamdp.errors import StreamdpError
from streamdp.journal import JournalReader
from streamdp.observe.metrics import METRICS, PROCESS_PREFIX
from streamdp.observe.server import Answer, Listener

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("observed_daemon")]  # most of them share one daemon


def between_publications(port: int) -> str:
    """A scrape that no publication fell into: the messages of a point are counted one by one."""
    while True:
        first = get(port, "/metrics")[1]
        time.sleep(0.05)
        if get(port, "/metrics")[1] == first:
            return first


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """Both scrapes and the page's data, taken with the daemon running, and the outputs up to then."""
    stream = Observed(tmp_path_factory.mktemp("observed"), length="600ms")
    with running(stream, points=3) as (ports, _):
        told = submit(stream, "kmeans", "--epsilon", "0.1", "--set", "n_clusters=2")
        refused = submit(stream, "kmeans", "--epsilon", "0.21", "--set", "n_clusters=2")
        seen = 'streamdp_job_refusals_total{reason="budget"}'
        until(lambda: samples(get(ports["metrics"], "/metrics")[1])[seen] == 1)
        taken = {
            "public": between_publications(ports["metrics"]),
            "operator": get(ports["operator_metrics"], "/metrics")[1],
            "status": json.loads(get(ports["page"], "/status.json")[1]),
            "drawing": json.loads(get(ports["page"], "/drawing.json?histogram=ages&across=age&down=ward")[1]),
            "ready": get(ports["metrics"], "/ready"),
            "told": told,
            "refused": refused,
        }
        before = get(ports["operator_metrics"], "/ready")[0], get(ports["page"], "/metrics")[0]
    taken["elsewhere"] = before
    taken["outputs"] = [messages.decode(value) for value in stream.outputs()]
    taken["operator_values"] = samples(taken["operator"])
    return taken


def test_the_public_listener_has_every_public_metric_and_nothing_else(scraped):
    declared = {name for metric in METRICS if metric.audience == "public" for name in metric.series}
    assert names(scraped["public"]) == declared


def test_the_operators_listener_has_every_operator_metric_and_no_public_one(scraped):
    declared = {name for metric in METRICS if metric.audience == "operator" for name in metric.series}
    found = names(scraped["operator"])
    assert {name for name in found if not name.startswith(PROCESS_PREFIX)} == declared
    assert {"process_resident_memory_bytes", "process_cpu_seconds_total"} <= found


def test_public_values_follow_from_published_messages(scraped):
    """Each is computed again here from the output topics and the configuration alone."""
    public, outputs = samples(scraped["public"]), scraped["outputs"]
    point = public["streamdp_time_point"]
    seen = [each for each in outputs if each.header["time_point"] <= point]
    for histogram in ("wards", "ages"):
        mine = [each for each in seen if each.header["histogram"] == histogram]
        releases = [each for each in mine if each.kind == "release"]
        label = f'{{histogram="{histogram}"}}'
        assert public[f"streamdp_releases_total{label}"] == len(releases)
        repeats = [
            value for series, value in public.items() if series.startswith("streamdp_repeats") and histogram in series
        ]
        assert sum(repeats) == len(mine) - len(releases)
        assert public[f"streamdp_released_records{label}"] == releases[-1].counts.sum()
        assert public[f"streamdp_release_epsilon{label}"] == float(Fraction(releases[-1].header["epsilon"]))
        spent = sum(
            Fraction(charge)
            for each in mine
            for charge, _ in each.header["charges"]
            if point - each.header["time_point"] < 20
        )
        assert public[f"streamdp_epsilon_spent{label}"] == pytest.approx(float(spent))
        assert public[f"streamdp_epsilon_reserved{label}"] == pytest.approx(0.4)
    asked = [each.header["threshold"] for each in seen if each.header["threshold"] is not None]
    assert public['streamdp_threshold{histogram="wards"}'] == float(Fraction(asked[-1]))
    assert public["streamdp_time_points_total"] == point
    assert public["streamdp_jobs_epsilon_spent"] == pytest.approx(0.1)


def test_no_raw_quantity_is_on_a_public_surface(scraped):
    """Rows, users, bytes: figures of the raw data are large and specific here, so any copy of one would be seen."""
    operator = scraped["operator_values"]
    raw = {
        operator["streamdp_rows_ingested_total"],
        operator["streamdp_population_users"],
        operator["streamdp_population_bytes"],
        operator['streamdp_rows_rejected_total{reason="bad_json"}'],
        operator["streamdp_journal_bytes"],
        operator["process_resident_memory_bytes"],
    }
    assert min(raw) > 20
    # What was released may equal anything by chance; everything else may not.
    public = {
        value
        for series, value in samples(scraped["public"]).items()
        if not series.startswith("streamdp_released_records")
    }
    assert not raw & public
    status = json.dumps({**scraped["status"], "jobs": []})
    status = re.sub(r'"total": -?\d+', "", status)
    shown = {float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", status)}
    assert raw & shown == set(), status


def test_the_page_shows_the_released_counts_and_no_others(scraped):
    release = next(
        each
        for each in scraped["outputs"]
        if each.kind == "release" and each.header["release_id"] == scraped["drawing"]["release_id"]
    )
    assert scraped["drawing"]["counts"] == release.counts.reshape(4, 10).T.reshape(-1).tolist()
    assert [axis["name"] for axis in scraped["drawing"]["axes"]] == ["age", "ward"]


def test_the_page_and_the_metrics_tell_of_jobs(scraped):
    assert "does not fit" in scraped["refused"]
    states = {job["state"]: job for job in scraped["status"]["jobs"]}
    assert set(states) == {"done", "refused"}
    assert len(states["done"]["summary"]["centres"]) == 2
    public = samples(scraped["public"])
    assert public['streamdp_jobs_total{kind="kmeans",state="done"}'] == 1
    assert public['streamdp_job_refusals_total{reason="budget"}'] == 1
    operator = scraped["operator_values"]
    assert operator['streamdp_job_run_seconds_count{kind="kmeans"}'] == 1
    assert operator['streamdp_job_queue_seconds_count{kind="kmeans"}'] == 1


def test_health_is_on_the_public_listener_only(scraped):
    assert scraped["ready"] == (200, "ready\n")
    assert scraped["elsewhere"] == (404, 404)


def test_unready_first_then_gone_and_a_restart_remembers_what_was_published(tmp_path):
    stream = Observed(tmp_path, length="200ms")
    # A stop that takes a while: what is stored leaves only after this.
    stream.path.write_text(stream.path.read_text().replace("[time]\n", '[time]\npublish_after = "2s"\n'))
    with running(stream, points=2) as (ports, process):
        assert get(ports["metrics"], "/live")[0] == 200
        process.send_signal(signal.SIGTERM)
        until(lambda: get(ports["metrics"], "/ready") == (503, "not running\n"))
        assert get(ports["metrics"], "/live") == (200, "live\n")
        assert samples(get(ports["metrics"], "/metrics")[1])["streamdp_ready"] == 0
        assert process.wait(PATIENCE) == 0
    published = [messages.decode(value) for value in stream.outputs()]
    (tmp_path / "daemon.log").unlink()
    with running(stream, points=0) as (ports, process):
        until(lambda: get(ports["metrics"], "/ready")[0] == 200)
        status = json.loads(get(ports["page"], "/status.json")[1])
        points = [point["time_point"] for point in status["histograms"][0]["points"]]
        assert points[:2] == [1, 2]
        assert points == sorted(set(points))
        assert status["histograms"][1]["release"]["release_id"] in {
            each.header.get("release_id") for each in published
        } | {each.header.get("release_id") for each in map(messages.decode, stream.outputs())}


def test_decisions_are_not_shown_before_they_are_published(tmp_path):
    """What the journal holds for publication in some minutes is on no public surface, also after a restart."""
    stream = Observed(tmp_path, length="200ms")
    stream.path.write_text(stream.path.read_text().replace("[time]\n", '[time]\npublish_after = "300s"\n'))
    for _ in ("first", "restarted"):
        (tmp_path / "daemon.log").unlink(missing_ok=True)
        process = stream.start()
        try:
            ports = stream.ports(process)
            stream.wait(lambda: stream.log_text().count('"time point closed"') >= 1, process)
            submit(stream, "kmeans", "--epsilon", "0.01", "--set", "n_clusters=2", wait=False)
            stream.wait(lambda: '"job started"' in stream.log_text(), process)
            shows_nothing(ports)
            assert '"released"' not in stream.log_text()
        finally:
            process.kill()
            process.wait()


def shows_nothing(ports: dict[str, int]) -> None:
    """No decision of any time point, and no job, is on a public surface."""
    public = samples(get(ports["metrics"], "/metrics")[1])
    assert public["streamdp_time_point"] == 0
    for histogram in ("wards", "ages"):
        assert public[f'streamdp_epsilon_spent{{histogram="{histogram}"}}'] == 0
        assert public[f'streamdp_epsilon_left{{histogram="{histogram}"}}'] == pytest.approx(0.4)
        assert public[f'streamdp_epsilon_returns_seconds{{histogram="{histogram}"}}'] == 0
        assert public[f'streamdp_releases_total{{histogram="{histogram}"}}'] == 0
    assert public["streamdp_jobs_epsilon_spent"] == 0
    assert not any(series.startswith("streamdp_controller") for series in public)
    status = json.loads(get(ports["page"], "/status.json")[1])
    assert [histogram["points"] for histogram in status["histograms"]] == [[], []]
    assert [histogram["release"] for histogram in status["histograms"]] == [None, None]
    assert [share["spent"] for share in status["budget"]["histograms"]] == [0, 0]
    assert status["budget"]["jobs"]["spent"] == 0
    assert status["jobs"] == []
    assert get(ports["page"], "/drawing.json?histogram=ages")[0] == 404


def test_after_a_restart_the_ledger_follows_what_is_published(tmp_path):
    """What was decided before the restart shows when it is published: no sooner, and then all of it."""
    stream = Observed(
        tmp_path, length="200ms", guarantee="horizon = 10000", strategy="fixed", parameters="interval = 1"
    )
    stream.path.write_text(stream.path.read_text().replace("[time]\n", '[time]\npublish_after = "4s"\n'))
    process = stream.start()
    stream.wait(lambda: stream.last_published() >= 3, process)
    process.kill()
    process.wait()
    (tmp_path / "daemon.log").unlink()
    with JournalReader.open(stream.config.journal_path) as journal:
        decided = journal.last_time_point
    spent = 'streamdp_epsilon_spent{histogram="wards"}'
    with running(stream, points=0) as (ports, process):
        until(lambda: get(ports["metrics"], "/ready")[0] == 200)
        shown, point = 0.0, 0.0
        while point <= decided:
            public = samples(between_publications(ports["metrics"]))
            shown, point = public[spent], public["streamdp_time_point"]
            told = sum(
                Fraction(epsilon)
                for each in map(messages.decode, stream.outputs())
                if each.header["histogram"] == "wards" and each.header["time_point"] <= point
                for epsilon, _ in each.header["charges"]
            )
            assert shown <= float(told) + 1e-12, "shown before it was published"
        assert shown == pytest.approx(float(told))


def test_an_address_that_is_taken_is_said_plainly():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            StreamdpError, match=rf"\[observe\] page: cannot listen on 127.0.0.1:{port}: .*Give another"
        ):
            Listener("page", Address("127.0.0.1", port), {})


def test_a_route_that_fails_answers_500_and_says_nothing():
    def fail(query):
        raise ValueError("secret")

    listener = Listener("page", Address("127.0.0.1", 0), {"/fails": fail, "/fine": lambda query: Answer(b"fine")})
    try:
        status, text = get(listener.address.port, "/fails")
        assert (status, "secret" in text) == (500, False)
        assert get(listener.address.port, "/fine") == (200, "fine")
    finally:
        listener.close()
