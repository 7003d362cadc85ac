"""What `deploy/` ships, as far as it can be checked without Docker, a cluster or an init system."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from waiting import PATIENCE

from streamdp import __version__
from streamdp.cli import build_parser
from streamdp.config import load
from streamdp.config.transports import open_input
from streamdp.daemon.daemon import STOP_SECONDS
from streamdp.ingest import Decoder

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
# What `kubectl apply -f deploy/kubernetes/` takes.
APPLIED = [path for path in (DEPLOY / "kubernetes").rglob("*") if path.suffix in (".yaml", ".yml", ".json")]
MANIFESTS = [each for path in APPLIED for each in yaml.safe_load_all(path.read_text())]
SECRET = yaml.safe_load((DEPLOY / "kubernetes" / "secret.yaml.example").read_text())
UNIT = (DEPLOY / "systemd" / "streamdp@.service").read_text()
BACKUP_UNIT = (DEPLOY / "systemd" / "streamdp-backup@.service").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def manifest(kind: str) -> dict:
    return next(each for each in MANIFESTS if each["kind"] == kind)


def seconds(text: str) -> int:
    assert text.endswith("s")
    return int(text[:-1])


# compose


def test_compose_is_valid_by_its_published_schema():
    schema = json.loads(files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text())
    jsonschema.validate(COMPOSE, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**COMPOSE, "services": {"one": {"imge": "typo"}}}, schema)


def test_compose_mounts_what_exists_and_publishes_to_loopback():
    for name, service in COMPOSE["services"].items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
    # Raw data: for the Prometheus inside, and for nobody outside.
    assert not any("9465" in port for service in COMPOSE["services"].values() for port in service.get("ports", []))


def test_prometheus_and_grafana_meet_where_compose_puts_them():
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    demo = load(DEPLOY / "demo" / "clinic.toml")
    listening = {f"streamdp:{demo.observe.metrics.port}", f"streamdp:{demo.observe.operator_metrics.port}"}
    assert {job["static_configs"][0]["targets"][0] for job in scraped} == listening
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/streamdp.yml").read_text())["providers"][0]
    mounted = [volume.split(":")[1] for volume in COMPOSE["services"]["grafana"]["volumes"]]
    assert provider["options"]["path"] in mounted
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / "dashboards" / Path(home).name).exists()


@pytest.mark.slow
def test_the_demo_producer_sends_what_the_demo_stream_takes(tmp_path):
    text = (DEPLOY / "demo" / "clinic.toml").read_text()
    path = tmp_path / "clinic.toml"
    path.write_text(re.sub(r"\[input\.kafka\]\n.*\n", '[input.log]\npath = "log"\n', text))
    process = subprocess.Popen([sys.executable, str(DEPLOY / "demo" / "produce.py"), str(path), "50"])
    try:
        config = load(path)
        deadline = time.monotonic() + PATIENCE
        ends = {0: 0}
        while sum(ends.values()) < 50:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
            if (tmp_path / "log" / "visits").exists():
                source = open_input(config)
                ends = source.end_offsets(config.input.topics)
                source.close()
    finally:
        process.kill()
        process.wait()
    source = open_input(config)
    decoder = Decoder(config.build_domain(), user="key", record_id=None, digest_key=b"k" * 16)
    reader = source.reader(source.begin_offsets(config.input.topics))
    taken = 0
    for batch in reader.poll(timeout=1):
        decoded = decoder.decode(batch, None)
        assert len(decoded.rejected_rows) == 0
        taken += len(decoded)
    reader.close()
    source.close()
    assert taken >= 50


# Docker


def test_the_image_is_slim_not_root_and_starts_without_a_shell():
    steps = re.sub(r"\\\n", " ", DOCKERFILE).splitlines()
    assert all("-slim" in step for step in steps if step.startswith("FROM "))
    user = [step for step in steps if step.startswith("USER ")][-1]
    assert re.fullmatch(r"USER [1-9]\d*:[1-9]\d*", user)
    for word in ("ENTRYPOINT", "CMD"):
        command = [step.removeprefix(word + " ") for step in steps if step.startswith(word + " ")][-1]
        assert json.loads(command), f"{word} is not in exec form"
    check = next(step for step in steps if step.startswith("HEALTHCHECK"))
    assert json.loads(check[check.index("[") :])[0] == "python"
    assert "/ready" in check


def test_the_image_gets_what_it_copies():
    allowed = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[0] == "!"]
    copied = [
        name
        for step in DOCKERFILE.splitlines()
        if step.startswith("COPY ") and "--from" not in step
        for name in step.split()[1:-1]
    ]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert name in allowed


def test_an_installed_package_has_every_file_of_the_page():
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines()]
    for path in (ROOT / "streamdp").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc") and path.name != "py.typed":
            covered = any(
                path.is_relative_to(ROOT / folder) and any(fnmatch(path.name, pattern) for pattern in patterns)
                for word, folder, *patterns in rules
                if word == "recursive-include"
            )
            assert covered, f"{path.relative_to(ROOT)} would not be in a wheel: add it to MANIFEST.in"


# systemd


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="NOT TESTED: no systemd-analyze (apt-get install -y systemd)"
)
def test_the_unit_is_what_systemd_reads(tmp_path):
    program = tmp_path / "streamdp"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "streamdp@clinic.service"

    def verify(text: str) -> subprocess.CompletedProcess[str]:
        unit.write_text(text.replace("/opt/streamdp/bin/streamdp", str(program)))
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    for text in (UNIT, BACKUP_UNIT):
        done = verify(text)
        said = [line for line in done.stderr.splitlines() if "streamdp" in line]
        assert (done.returncode, said) == (0, []), done.stderr
    assert "Unknown key" in verify(UNIT.replace("StateDirectory=", "StatDirectory=")).stderr


def test_backups_run_as_the_stream_does_and_as_the_command_is():
    """The same user, and the same hardening: a journal is as private as the input."""

    def settings(text: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    stream, backup = settings(UNIT), settings(BACKUP_UNIT)
    hardening = list(stream)[list(stream).index("User") : list(stream).index("WantedBy")]
    different = {name for name in hardening if backup.get(name) != stream[name]}
    assert different == {"StateDirectory", "LimitNOFILE"}
    assert stream["StateDirectory"] in backup["StateDirectory"].split()
    arguments = build_parser().parse_args(backup["ExecStart"].split()[1:])
    assert arguments.every is not None


def test_every_way_to_run_it_waits_longer_than_a_drain():
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    waits = [
        int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[1]),
        seconds(COMPOSE["services"]["streamdp"]["stop_grace_period"]),
        pod["terminationGracePeriodSeconds"],
    ]
    assert min(waits) >= 2 * STOP_SECONDS


def test_every_way_to_run_it_allows_as_many_open_files_as_the_docs_say():
    unit = int(re.search(r"^LimitNOFILE=(\d+)$", UNIT, re.MULTILINE)[1])
    assert COMPOSE["services"]["streamdp"]["ulimits"]["nofile"] == {"soft": unit, "hard": unit}
    assert f"`deploy/` sets {unit:,}." in " ".join((ROOT / "docs" / "operations.md").read_text().split())
    assert "LimitCORE=0" in UNIT, "a core dump is as private as the input"


# Kubernetes


@pytest.mark.parametrize("one", [*MANIFESTS, SECRET], ids=lambda one: one["kind"])
def test_a_manifest_is_valid_by_the_schema_of_its_kind(one):
    kubernetes_validate.validate(one, "1.31", strict=True)


def test_applying_the_manifests_never_replaces_a_real_secret():
    assert "Secret" not in {one["kind"] for one in MANIFESTS}


def test_the_schema_check_sees_a_typo():
    broken = json.loads(json.dumps(manifest("StatefulSet")))
    broken["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, "1.31", strict=True)


def test_the_manifests_hold_together(tmp_path, monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    (tmp_path / "stream.toml").write_text(manifest("ConfigMap")["data"]["stream.toml"])
    config = load(tmp_path / "stream.toml")
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": config.observe.metrics.port,
        "operator": config.observe.operator_metrics.port,
        "page": config.observe.page.port,
    }
    assert manifest("StatefulSet")["spec"]["replicas"] == 1
    assert pod["securityContext"]["runAsUser"] == int(re.search(r"^USER (\d+)", DOCKERFILE, re.MULTILINE)[1])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(config.journal_path).startswith(mounts["journal"] + "/")
    secret = container["env"][0]["valueFrom"]["secretKeyRef"]
    assert secret["name"] == SECRET["metadata"]["name"]
    assert secret["key"] in SECRET["stringData"]
    assert f"create secret generic {secret['name']} --from-file={secret['key']}=" in (DEPLOY / "README.md").read_text()
    operator_rule = next(
        rule for rule in manifest("NetworkPolicy")["spec"]["ingress"] if {"port": 9465} in rule["ports"]
    )
    assert operator_rule["from"]


# Image versions


def images() -> dict[str, str]:
    """Every image that something here pulls or runs, by where it is named."""
    found = {f"compose {name}": service["image"] for name, service in COMPOSE["services"].items()}
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    found |= {f"kubernetes {each['name']}": each["image"] for each in pod["containers"] + pod.get("initContainers", [])}
    bases = re.findall(r"^FROM +(\S+)", DOCKERFILE, re.MULTILINE)
    return found | {f"Dockerfile, stage {at}": base for at, base in enumerate(bases, 1)}


@pytest.mark.parametrize(("where", "image"), images().items(), ids=images())
def test_an_image_is_pinned_to_a_whole_version(where, image):
    name, _, tag = image.rpartition(":")
    assert re.match(r"v?\d+\.\d+\.\d+($|-)", tag), f"{where} runs {image}"
    if name == "streamdp":
        assert tag == __version__


def test_the_readme_leads_to_what_is_trusted_and_how_to_report():
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text()
    text = (ROOT / "SECURITY.md").read_text()
    assert "security advisories" in text
    assert not re.search(r"\S+@\S+\.\w+", text), "no address that nobody reads"


def test_the_readme_names_everything_it_ships():
    text = (DEPLOY / "README.md").read_text()
    for name in (
        "Dockerfile",
        "requirements",
        "compose.yaml",
        "systemd/",
        "kubernetes/",
        "prometheus/",
        "grafana/",
        "demo/",
        "examples/",
    ):
        assert f"`{name}" in text
