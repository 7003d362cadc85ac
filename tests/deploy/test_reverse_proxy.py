"""The nginx example of docs/guides/reverse-proxy.md, with a real nginx before a real daemon."""

from __future__ import annotations

import base64
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed import Observed, running
from waiting import until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "reverse-proxy.md"
NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
NAME, LOGIN = "streamdp.example.org", "prometheus:a secret"


@pytest.fixture
def nginx() -> str:
    if NGINX is None or shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("under CI=true the proxy must be tested, but nginx or openssl is missing", pytrace=False)
        pytest.skip("NOT TESTED: no nginx or openssl (apt-get install -y nginx-light openssl)")
    return NGINX


def example(directory: Path, ports: dict[str, int], port: int) -> str:
    """As the guide has it, but for ports and paths."""
    (text,) = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    text = text.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("/etc/nginx/", f"{directory}/")
    for habit, name in (("9464", "metrics"), ("9465", "operator_metrics"), ("9466", "page")):
        text = text.replace(f"127.0.0.1:{habit}", f"127.0.0.1:{ports[name]}")
    places = "".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off; pid {directory}/pid; error_log stderr; user root; events {{}}\n"
        f"http {{ access_log off; {places}\n{text}\n}}\n"
    )


def make_secrets(directory: Path) -> None:
    name, _, password = LOGIN.partition(":")
    hashed = subprocess.run(["openssl", "passwd", "-apr1", password], capture_output=True, text=True, check=True).stdout
    (directory / "streamdp.htpasswd").write_text(f"{name}:{hashed}")
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", directory / "streamdp.key", "-out", directory / "streamdp.crt"]
    about = ["-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    subprocess.run(["openssl", "req", "-x509", *key, *about], check=True, capture_output=True)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number = probe.getsockname()[1]
    yield number


def ask(directory: Path, port: int, path: str, login: str | None = None, method: str = "GET") -> tuple[int, str]:
    """Over TLS, with the certificate and the name checked."""
    context = ssl.create_default_context(cafile=str(directory / "streamdp.crt"))
    connection = http.client.HTTPSConnection(NAME, port, timeout=10)
    connection.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 10), server_hostname=NAME)
    headers = {} if login is None else {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_nginx_example_has_tls_a_login_for_the_operator_and_passes_the_host_check(
    nginx: str, tmp_path: Path, port: int
) -> None:
    place = tmp_path / "nginx"
    place.mkdir()
    make_secrets(place)
    (tmp_path / "stream").mkdir()
    with running(Observed(tmp_path / "stream", length="250ms"), points=1) as (ports, _):
        (place / "nginx.conf").write_text(example(place, ports, port))
        command = [nginx, "-p", str(place), "-c", str(place / "nginx.conf"), "-e", "stderr"]
        with (place / "log").open("wb") as log:
            proxy = subprocess.Popen(command, stdout=log, stderr=log)
        try:

            def listening() -> bool:
                assert proxy.poll() is None, (place / "log").read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            until(listening)
            operator = "/operator/metrics"
            assert ask(place, port, operator)[0] == 401
            assert ask(place, port, operator, "prometheus:guess")[0] == 401
            status, text = ask(place, port, operator, LOGIN)
            assert (status, "streamdp_population_users" in text) == (200, True), text
            for path, holds in (("/", "<html"), ("/status.json", "histograms"), ("/metrics", "streamdp_time_point")):
                status, text = ask(place, port, path)
                assert (status, holds in text) == (200, True), path
                assert "streamdp_population_users" not in text
            assert ask(place, port, "/ready") == (200, "ready\n")
            assert ask(place, port, "/live") == (200, "live\n")
            assert ask(place, port, "/operator", LOGIN)[0] == 404
            assert ask(place, port, "/", method="POST")[0] == 501
        finally:
            proxy.terminate()
            proxy.wait(20)
