"""Rules unit-tested by promtool, and every expression of every dashboard asked of a real Prometheus."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from waiting import PATIENCE, until

sys.path.insert(0, str(Path(__file__).parents[1] / "observe"))
from observed import Observed, running, submit

from streamdp.config import load
from streamdp.config.report import promise
from streamdp.observe.metrics import METRICS, PROCESS_PREFIX

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="NOT TESTED: no promtool (apt-get install -y prometheus)"
)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="NOT TESTED: no Prometheus (apt-get install -y prometheus)"
)


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_the_configuration_and_rules_are_what_prometheus_reads():
    promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus" / "prometheus.yml"))
    promtool("check", "rules", *map(str, sorted(RULES.glob("*.yml"))))


@needs_promtool
def test_the_rules_do_what_their_unit_tests_say():
    promtool("test", "rules", str(DEPLOY / "prometheus" / "rules_test.yml"))


def rules() -> list[dict]:
    return [
        rule
        for path in sorted(RULES.glob("*.yml"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


def alerts() -> list[str]:
    groups = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    return [rule["alert"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("alert", alerts())
def test_every_alert_is_unit_tested_to_fire_and_not_to_and_is_explained(alert):
    tests = yaml.safe_load((DEPLOY / "prometheus" / "rules_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test.get("alert_rule_test", []) if case["alertname"] == alert]
    assert any(case.get("exp_alerts") for case in cases)
    assert any(not case.get("exp_alerts") for case in cases)
    assert f"`{alert}`" in (DEPLOY.parent / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("rule", [rule for rule in rules() if "alert" in rule], ids=lambda rule: rule["alert"])
def test_every_alert_says_what_it_means_and_where_it_is_explained(rule):
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    page, _, anchor = notes["runbook_url"].partition("#")
    assert f'<a id="{anchor}"></a>`{rule["alert"]}`' in (DEPLOY.parent / page).read_text()


def expressions(path: Path) -> list[str]:
    panels = json.loads(path.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def variables(path: Path) -> dict[str, dict]:
    return {variable["name"]: variable for variable in json.loads(path.read_text())["templating"]["list"]}


def is_public(path: Path) -> bool:
    return "public" in json.loads(path.read_text())["tags"]


def used(expression: str) -> set[str]:
    return set(re.findall(r"(?:streamdp_|process_)[a-z_]+", re.sub(r'"[^"]*"', "", expression)))


def test_every_metric_that_a_panel_or_a_rule_uses_exists():
    known = {name for metric in METRICS for name in metric.series}
    asked = {name for path in DASHBOARDS for each in expressions(path) for name in used(each)}
    asked |= {name for rule in rules() for name in used(rule["expr"])}
    assert len(asked) > 30
    assert {name for name in asked if not name.startswith(PROCESS_PREFIX)} <= known
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    text = " ".join(each for path in DASHBOARDS for each in expressions(path)) + " ".join(r["expr"] for r in rules())
    assert set(re.findall(r"streamdp:[a-z0-9_:]+", text)) <= recorded


def test_every_metric_is_on_some_dashboard_or_in_a_rule():
    asked = {name for path in DASHBOARDS for each in expressions(path) for name in used(each)}
    asked |= {name for rule in rules() for name in used(rule["expr"])}
    for metric in METRICS:
        assert set(metric.series) & asked or metric.name in asked, f"{metric.name} is used nowhere"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_provisioned_anywhere_and_keeps_to_its_audience(path):
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == path.stem
    assert list(variables(path)) == ["datasource", "stream", *["promise"] * is_public(path)]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert panel["description"].endswith("."), panel["title"]
        assert panel["type"] == "text" or panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    for each in expressions(path):
        series = re.findall(r"(?:streamdp[_:]|process_)[a-z0-9_:]+(.{0,17})", each)
        assert series
        assert set(series) == {'{stream="$stream"'}, f"{each} is not of the chosen stream alone"
    if is_public(path):
        public = {name for metric in METRICS if metric.audience == "public" for name in metric.series}
        assert {name for each in expressions(path) for name in used(each)} <= public


@pytest.mark.parametrize("path", [path for path in DASHBOARDS if is_public(path)], ids=lambda path: path.stem)
def test_a_public_dashboard_begins_with_the_guarantee_as_text(path):
    first = json.loads(path.read_text())["panels"][0]
    assert (first["type"], first["gridPos"]["y"]) == ("text", 0)
    assert "${promise}" in first["options"]["content"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **query: str) -> dict:
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            return json.load(answer)

    def value_of(self, expression: str, stream: str = "") -> list[float]:
        expression = expression.replace("$__rate_interval", "1m").replace("$stream", stream)
        return [float(sample["value"][1]) for sample in self.ask("query", query=expression)["data"]["result"]]

    def choices(self, variable: dict, stream: str) -> list[str]:
        """What Grafana offers for a variable whose query is `label_values(series, label)`."""
        [(series, label)] = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"]["query"])
        return self.ask(f"label/{label}/values", **{"match[]": series.replace("$stream", stream)})["data"]


def configuration(ports: dict[str, int]) -> str:
    """The one we ship, but for where the daemon is and how often it is asked."""
    shipped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    shipped["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    shipped["rule_files"] = [str(RULES / "*.yml")]
    targets = {"streamdp": ports["metrics"], "streamdp-operator": ports["operator_metrics"]}
    for job in shipped["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
    return yaml.safe_dump(shipped)


@pytest.mark.slow
@needs_prometheus
def test_every_dashboard_expression_and_recording_rule_returns_something_on_a_healthy_daemon(tmp_path):
    stream = Observed(tmp_path, length="250ms")
    config = load(stream.path)
    name, port = config.name, free_port()
    with running(stream, points=3) as (ports, _):
        for port_of_metrics in (ports["metrics"], ports["operator_metrics"]):
            with urllib.request.urlopen(f"http://127.0.0.1:{port_of_metrics}/metrics", timeout=PATIENCE) as answer:
                said = subprocess.run(
                    ["promtool", "check", "metrics"], input=answer.read(), capture_output=True, check=False
                )
            assert said.returncode == 0, said.stderr
        (tmp_path / "prometheus.yml").write_text(configuration(ports))
        with (tmp_path / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={tmp_path / 'prometheus.yml'}",
                    f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            prometheus = Prometheus(port)

            def scraped() -> bool:
                try:
                    return prometheus.value_of("up") == [1, 1]
                except OSError:
                    return False

            until(scraped)
            submit(stream, "kmeans", "--epsilon", "0.1", "--set", "n_clusters=2")
            asked = {each for path in DASHBOARDS for each in expressions(path)}
            asked |= {rule["record"] for rule in rules() if "record" in rule}

            def silent() -> set[str]:
                return {each for each in asked if all(map(math.isnan, prometheus.value_of(each, name)))}

            # Rates need two scrapes after what they count.
            waiting = set(asked)

            def all_answered() -> bool:
                waiting.intersection_update(silent())
                return not waiting

            try:
                until(all_answered)
            except AssertionError:
                pytest.fail(f"returned nothing: {sorted(waiting)}")
            for path in DASHBOARDS:
                assert prometheus.choices(variables(path)["stream"], "") == [name]
                assert not any(prometheus.value_of(each, "another") for each in expressions(path))
                if is_public(path):
                    assert prometheus.choices(variables(path)["promise"], name) == [promise(config)]
            evaluated = prometheus.ask("rules")["data"]["groups"]
            assert {rule["health"] for group in evaluated for rule in group["rules"]} == {"ok"}
            raised = prometheus.ask("alerts")["data"]["alerts"]
            firing = {alert["labels"]["alertname"] for alert in raised if alert["state"] == "firing"}
            # A stream this fast may use up a window's releases in a second; and a busy machine misses points of it.
            assert firing <= {"StreamdpBudgetGoneEarly", "StreamdpPointsMissed"}
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_the_operator_sees_the_age_of_the_backup():
    (path,) = [path for path in DASHBOARDS if not is_public(path)]
    assert any("time() - streamdp_backup_timestamp_seconds" in each for each in expressions(path))
