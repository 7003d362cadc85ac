"""HTTP listeners of the daemon: metrics, health, the status page. Read only; each in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from streamdp.config.observe import Address
from streamdp.errors import StreamdpError

log = logging.getLogger("streamdp.observe")

# A client that is slower than this to ask or to listen is dropped, so that none can hold a thread for ever.
CLIENT_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


Query = Mapping[str, str]
Route = Callable[[Query], Answer]


def metrics_route(registry: CollectorRegistry) -> Route:
    return lambda query: Answer(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)


class Listener:
    """Serves `routes` by exact path until closed. Raises a StreamdpError when the address cannot be had."""

    def __init__(self, name: str, address: Address, routes: Mapping[str, Route]) -> None:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET

        class Server(ThreadingHTTPServer):
            address_family = family
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is no news."""

        handler = type("Handler", (_Handler,), {"routes": routes})
        try:
            self._server = Server((address.host, address.port), handler)
        except OSError as error:
            raise StreamdpError(
                f"[observe] {name}: cannot listen on {address}: {error.strerror or error}. Give another address, or "
                "leave it out"
            ) from error
        self.address = Address(address.host, self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name=f"observe-{name}", daemon=True)
        self._thread.start()
        log.info("listening", extra={"fields": {"listener": name, "address": str(self.address)}})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Route]
    timeout = CLIENT_SECONDS
    server_version = "streamdp"
    sys_version = ""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        route = self.routes.get(parts.path)
        if route is None:
            self._send(Answer(b"not found\n", status=404))
            return
        try:
            answer = route(dict(parse_qsl(parts.query)))
        except Exception:
            log.exception("a request could not be answered")
            answer = Answer(b"something went wrong\n", status=500)
        self._send(answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "default-src 'self'; frame-ancestors 'self'; base-uri 'none'")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Who asks how often is not the daemon's business."""
