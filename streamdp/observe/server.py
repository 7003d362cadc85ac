"""HTTP listeners of the daemon: metrics, health, the status page. Read only; each in a thread of its own.

Whoever reaches a listener may be a stranger. Connections, their time and the size of a request are bounded, so that the
journal always finds a descriptor and a probe an answer.
"""

from __future__ import annotations

import errno
import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from streamdp.config.observe import MAX_CONNECTIONS, Address
from streamdp.errors import StreamdpError

log = logging.getLogger("streamdp.observe")

# From the accept to the last byte of the answer, so that nobody holds a connection for ever, byte by byte.
CLIENT_SECONDS = 10.0
# Request line and headers together. A browser sends about 1 KB.
MAX_REQUEST_BYTES = 16_384
# Without a descriptor to accept with, the listener leaves the rest of the daemon alone for so long.
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Answer:
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


Query = Mapping[str, str]
Route = Callable[[Query], Answer]


def _not_found(query: Query) -> Answer:
    return Answer(b"not found\n", status=404)


def metrics_route(registry: CollectorRegistry) -> Route:
    return lambda query: Answer(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)


class Listener:
    """Serves `routes` by exact path until closed. Raises a StreamdpError when the address cannot be had.

    With `hosts`, a request must have been sent to one of these names, to `localhost`, to the address's own host or to
    an IP address. A page of somebody else's, whose name was made to lead here (DNS rebinding), is then refused.
    """

    def __init__(
        self, name: str, address: Address, routes: Mapping[str, Route], hosts: Collection[str] | None = None
    ) -> None:
        known = None if hosts is None else frozenset(host.lower() for host in (*hosts, address.host, "localhost"))
        handler = type("Handler", (_Handler,), {"routes": routes, "hosts": known})
        try:
            self._server = _Server(address, handler)
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


class _Server(ThreadingHTTPServer):
    """At most MAX_CONNECTIONS at once, each for CLIENT_SECONDS at most. When all are taken, the one that was opened
    first makes room: a probe is answered while strangers hold the rest."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: Address, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._changed = threading.Condition()
        self._opened: dict[socket.socket, float] = {}
        super().__init__((address.host, address.port), handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(PAUSE_SECONDS)  # The connection goes on waiting: the next attempt would come at once.
            raise

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for this connection."""
        with self._changed:
            if len(self._opened) >= MAX_CONNECTIONS:
                self._end(next(iter(self._opened)))
                if not self._changed.wait_for(lambda: len(self._opened) < MAX_CONNECTIONS, PAUSE_SECONDS):
                    return False
            self._opened[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Called between accepts, and twice a second."""
        with self._changed:
            overdue = time.monotonic() - CLIENT_SECONDS
            for request in [request for request, since in self._opened.items() if since < overdue]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._opened.pop(request, None)
            self._changed.notify_all()
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""

    @staticmethod
    def _end(request: socket.socket) -> None:
        """Whatever its thread waits for comes to an end. The thread closes it."""
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Bounded(io.BufferedReader):
    """A request, up to MAX_REQUEST_BYTES."""

    _left = MAX_REQUEST_BYTES

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Route]
    hosts: frozenset[str] | None
    timeout = CLIENT_SECONDS
    rbufsize = 0
    server_version = "streamdp"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile = _Bounded(cast(io.RawIOBase, self.rfile))

    def do_GET(self) -> None:
        if not self._is_meant_for_us():
            text = b"this listener does not answer to that Host; name it in [observe] operator_hosts\n"
            self._send(Answer(text, status=403))
            return
        try:
            parts = urlsplit(self.path)
            route = self.routes.get(parts.path, _not_found)
            answer = route(dict(parse_qsl(parts.query)))
        except Exception:
            log.exception("a request could not be answered")
            answer = Answer(b"something went wrong\n", status=500)
        self._send(answer)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _is_meant_for_us(self) -> bool:
        """No name leads to an IP address by itself, so that one in the header was typed by whoever asks."""
        if self.hosts is None:
            return True
        try:
            host = urlsplit("//" + self.headers.get("Host", "")).hostname or ""
            return host in self.hosts or bool(ip_address(host))
        except ValueError:
            return False

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
