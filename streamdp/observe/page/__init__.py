"""The status page: three static files and two pieces of JSON from the board. It asks nothing of any other host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files

from streamdp.observe.board import Board
from streamdp.observe.server import Answer, Query, Route

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes(board: Board) -> Mapping[str, Route]:
    """`/status.json?since=VERSION`, `/drawing.json?histogram=NAME&across=A&down=B` and the page itself."""

    def status(query: Query) -> Answer:
        return _json(board.status(query.get("since")))

    def drawing(query: Query) -> Answer:
        wanted = [query[name] for name in ("across", "down") if name in query]
        found = board.drawing(query.get("histogram", ""), wanted)
        return Answer(b"no such release\n", status=404) if found is None else _json(found)

    routes: dict[str, Route] = {path: _file(name, kind) for path, (name, kind) in _FILES.items()}
    return {**routes, "/status.json": status, "/drawing.json": drawing}


def _file(name: str, content_type: str) -> Route:
    body = files(__package__).joinpath(name).read_bytes()
    return lambda query: Answer(body, content_type)


def _json(value: object) -> Answer:
    return Answer(json.dumps(value, separators=(",", ":"), allow_nan=False).encode(), "application/json")
