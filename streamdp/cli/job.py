"""`streamdp job`: ask for an analysis, see what became of it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdp.errors import ConfigurationError, StreamdpError

if TYPE_CHECKING:
    from streamdp.config import StreamConfig
    from streamdp.transport.base import Transport

ORDER = 45
HELP = "run an analysis on demand, charged to the stream's budget"
DESCRIPTION = """\
A job runs once on the data of the last closed time point, for an epsilon that you choose out of what is left.

  streamdp job kinds CONFIG                          what can be asked, and each kind's parameters
  streamdp job submit CONFIG kmeans --epsilon 0.3 --set n_clusters=5 --wait
  streamdp job list CONFIG                           every job, and what became of it
  streamdp job show CONFIG ID                        one of them, with its result or its progress
  streamdp job show CONFIG ID --output FILE.parquet  the rows that one made, again and for free
  streamdp job cancel CONFIG ID                      stop it; what it was charged stays spent

A request is answered at the close of a time point, and results leave at one. A job that fails, is cancelled or takes
too long has still spent its epsilon: trying again until it works would not be private."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    submit = verbs.add_parser("submit", help="ask for a job")
    submit.set_defaults(action=_submit)
    listing = verbs.add_parser("list", help="every job, and what became of it")
    listing.set_defaults(action=_list)
    show = verbs.add_parser("show", help="one job, with its result or its progress")
    show.set_defaults(action=_show)
    cancel = verbs.add_parser("cancel", help="stop a job; its charge stays spent")
    cancel.set_defaults(action=_cancel)
    kinds = verbs.add_parser("kinds", help="what can be asked, and each kind's parameters")
    kinds.set_defaults(action=_kinds)
    for verb in (submit, listing, show, cancel):
        verb.add_argument("config", type=Path, metavar="CONFIG", help="the stream's TOML file")
    kinds.add_argument("config", type=Path, metavar="CONFIG", nargs="?", help="show only what this stream allows")
    for verb in (submit, listing, show, kinds):
        verb.add_argument("--json", action="store_true", help="for programs")
    submit.add_argument("kind", metavar="KIND", help="see `streamdp job kinds`")
    submit.add_argument("--epsilon", required=True, metavar="E", help="what the job may spend, such as 0.3")
    submit.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="params",
        help="a parameter of the kind (may be repeated); a value is JSON, or else text",
    )
    submit.add_argument("--id", metavar="ID", help="the job's id; made up when left out")
    submit.add_argument("--wait", action="store_true", help="wait for the result and print it")
    submit.add_argument(
        "--output", type=Path, metavar="FILE", help="wait, and write the rows the job makes to FILE (.parquet or .csv)"
    )
    show.add_argument("--output", type=Path, metavar="FILE", help="write the rows it made to FILE (.parquet or .csv)")
    for verb in (show, cancel):
        verb.add_argument("id", metavar="ID", help="the job's id")


def run(arguments: argparse.Namespace) -> int:
    code: int = arguments.action(arguments)
    return code


def _submit(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.daemon.job_runner import rules_of
    from streamdp.engine import JobRequested, Topics
    from streamdp.jobs.catalogue import KINDS
    from streamdp.jobs.request import MALFORMED, encode_request, read_request

    config = load(arguments.config)
    job_id = arguments.id or uuid.uuid4().hex[:12]
    value = encode_request(job_id, arguments.kind, arguments.epsilon, _params(arguments.params))
    # The daemon checks again; here it is for an answer at once.
    request = read_request(value, rules_of(config))
    if request is None:
        raise ConfigurationError(MALFORMED)
    if isinstance(request, JobRequested) and request.refusal is not None:
        raise ConfigurationError(request.refusal)
    if arguments.output is not None:
        _check_output(arguments.output)
        if not KINDS[arguments.kind].makes_rows:
            raise ConfigurationError(f"--output: {arguments.kind} makes no rows; --wait prints its result")
    transport = _open_topics(config)
    try:
        topics = Topics.of(config.output_prefix)
        start = transport.end_offsets([topics.results])
        _send(config, transport, job_id, value)
        if not (arguments.wait or arguments.output):
            print(json.dumps({"id": job_id}) if arguments.json else job_id)
            return 0
        print(f"waiting for job {job_id}; Ctrl-C stops waiting, not the job", file=sys.stderr)
        for outcome in _outcomes(transport, start, heard=_Waiting(config, job_id).look):
            if outcome["id"] == job_id:
                _print_outcome(outcome, as_json=arguments.json)
                if arguments.output is not None and outcome["state"] == "done":
                    _write_rows(transport, outcome, arguments.output)
                return 0 if outcome["state"] == "done" else 1
    finally:
        transport.close()
    return 1


def _check_output(path: Path) -> None:
    """Before anything is spent on rows that have no place to go."""
    if path.suffix not in (".parquet", ".csv"):
        raise ConfigurationError("--output: give a file that ends in .parquet or .csv")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigurationError("--output: that file cannot be written")


class _Waiting:
    """Tells whoever looks at a terminal how far the job is; public quantities only."""

    def __init__(self, config: StreamConfig, job_id: str) -> None:
        self._config, self._id, self._told = config, job_id, ""

    def look(self) -> None:
        from streamdp.daemon.job_runner import read_progress

        text = _progress_text(self._id, read_progress(self._config)) if sys.stderr.isatty() else ""
        if text and text != self._told:
            print(text, file=sys.stderr)
            self._told = text


def _params(given: list[str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {word}: give NAME=VALUE")
        try:
            params[name] = json.loads(text)
        except ValueError:
            params[name] = text
    return params


def _list(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.daemon.job_runner import read_progress
    from streamdp.journal import JournalReader
    from streamdp.privacy.exact import decimal_text

    config = load(arguments.config)
    progress = read_progress(config)
    with JournalReader.open(config.journal_path) as journal:
        jobs = journal.jobs()
    if arguments.json:
        for job in jobs:
            print(json.dumps(_fields(job, progress)))
        return 0
    row = "{:24}  {:12}  {:>10}  {:>10}  {:10}  {}"
    print(row.format("id", "kind", "epsilon", "time point", "state", ""))
    for job in jobs:
        point = "-" if job.time_point is None else str(job.time_point)
        remark = job.reason or "" if job.state == "refused" else _progress_text(job.job_id, progress)
        print(row.format(job.job_id, job.kind, decimal_text(job.epsilon), point, job.state, remark).rstrip())
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.daemon.job_runner import read_progress
    from streamdp.engine import Topics
    from streamdp.journal import JournalReader

    config = load(arguments.config)
    if arguments.output is not None:
        _check_output(arguments.output)
    with JournalReader.open(config.journal_path) as journal:
        job = journal.job(arguments.id)
    if job is None:
        raise StreamdpError("no such job; `streamdp job list` has them all. A request is taken up when a point closes")
    fields = _fields(job, read_progress(config))
    if job.published_at is not None and job.state == "done":
        transport = _open_topics(config)
        try:
            start = transport.begin_offsets([Topics.of(config.output_prefix).results])
            found = [each for each in _outcomes(transport, start) if each["id"] == job.job_id]
            done = [each for each in found if each["state"] == "done"]
            fields |= {name: done[0][name] for name in ("result", "rows") if done and name in done[0]}
            if arguments.output is not None:
                _write_rows(transport, fields, arguments.output)
        finally:
            transport.close()
    elif arguments.output is not None:
        raise StreamdpError("the job has no rows, or not yet")
    if arguments.json:
        print(json.dumps(fields))
        return 0
    for name, value in fields.items():
        if value is not None and name != "result":
            print(f"{name:12} {value if isinstance(value, str | int) else json.dumps(value)}")
    if "result" in fields:
        _print_result(fields["result"])
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.jobs.request import encode_cancel
    from streamdp.journal import JournalReader

    config = load(arguments.config)
    with JournalReader.open(config.journal_path) as journal:
        job = journal.job(arguments.id)
    if job is None or not job.is_open:
        raise StreamdpError("no such job is running or waiting; `streamdp job list` has them all")
    transport = _open_topics(config)
    try:
        _send(config, transport, job.job_id, encode_cancel(job.job_id))
    finally:
        transport.close()
    print("it is cancelled when the time point closes; what it was charged stays spent")
    return 0


def _kinds(arguments: argparse.Namespace) -> int:
    from streamdp.config import load
    from streamdp.daemon.job_runner import rules_of
    from streamdp.jobs.catalogue import KINDS, describe

    allowed = tuple(KINDS) if arguments.config is None else rules_of(load(arguments.config)).kinds
    kinds = [kind for name, kind in KINDS.items() if name in allowed]
    if arguments.json:
        for kind in kinds:
            print(json.dumps({"kind": kind.name, "summary": kind.summary, "parameters": describe(kind)}))
        return 0
    if not kinds:
        print("this stream allows no jobs")
    for kind in kinds:
        print(f"{kind.name}: {kind.summary}")
        for parameter in describe(kind):
            default = parameter["default"]
            remark = " (needed)" if default == "needed" else f" (default: {default})" if default else ""
            print(f"  {parameter['name']}{remark}: {parameter['type']}\n      {parameter['meaning']}")
    return 0


# The topics


def _open_topics(config: StreamConfig) -> Transport:
    from streamdp.config.transports import open_output
    from streamdp.engine import Topics
    from streamdp.transport.base import UnknownTopic

    transport = open_output(config, create=False)
    try:
        topics = Topics.of(config.output_prefix)
        transport.end_offsets([topics.jobs, topics.results])
    except UnknownTopic:
        transport.close()
        raise StreamdpError("this stream has no topic for jobs yet; start its daemon once") from None
    return transport


def _send(config: StreamConfig, transport: Transport, job_id: str, value: bytes) -> None:
    from streamdp.engine import Topics
    from streamdp.transport.base import Message

    # Of its own: the daemon holds the stream's identity, and two people may ask at once.
    writer = transport.writer(f"{config.output_prefix}-job-{uuid.uuid4().hex}")
    try:
        writer.append([Message(Topics.of(config.output_prefix).jobs, value, key=job_id.encode(), partition=0)])
    finally:
        writer.close()


def _outcomes(
    transport: Transport, start: dict[Any, int], heard: Callable[[], None] | None = None
) -> Iterator[dict[str, Any]]:
    """What became of jobs, one whole message each, from the given positions on; with `heard`, which is called again
    and again meanwhile, for ever."""
    from streamdp import messages
    from streamdp.result_messages import join_result

    (partition,) = start
    end = transport.end_offsets([partition.topic])[partition]
    reader = transport.reader(start)
    parts: dict[str | None, list[dict[str, Any]]] = {}
    try:
        while heard is not None or reader.positions()[partition] < end:
            if heard is not None:
                heard()
            for batch in reader.poll(timeout=0.5):
                for value in batch.values:
                    header = messages.decode(value or b"").header
                    parts.setdefault(header["id"], []).append(header)
                    whole = join_result(parts[header["id"]])
                    if whole is not None:
                        del parts[header["id"]]
                        yield whole
    finally:
        reader.close()


def _write_rows(transport: Transport, outcome: dict[str, Any], path: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    from streamdp.result_messages import decode_rows

    if "rows" not in outcome:
        raise StreamdpError("the job made no rows, or its result is gone from its topic")
    topic = outcome["rows"]["topic"]
    start, end = transport.begin_offsets([topic]), transport.end_offsets([topic])
    reader = transport.reader(start)
    values: list[bytes] = []
    try:
        while any(reader.positions()[partition] < offset for partition, offset in end.items()):
            values += [value for batch in reader.poll(timeout=0.5) for value in batch.values if value is not None]
    finally:
        reader.close()
    table = decode_rows(values)
    try:
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, path)
        else:
            pyarrow.csv.write_csv(table, path)
    except OSError as error:
        raise StreamdpError(
            f"the rows could not be written ({error.strerror or 'no room'}); they stay in their topic: "
            "`streamdp job show CONFIG ID --output FILE` gets them again, for free"
        ) from None
    print(f"{table.num_rows} rows written to {path}", file=sys.stderr)


# What is printed


def _fields(job: Any, progress: dict[str, Any]) -> dict[str, Any]:
    from streamdp.privacy.exact import to_text

    return {
        "id": job.job_id,
        "kind": job.kind,
        "state": job.state,
        "epsilon": to_text(job.epsilon),
        "params": dict(job.params),
        "time_point": job.time_point,
        "published_at": job.published_at,
        "reason": job.reason,
        "progress": _progress_text(job.job_id, progress) if job.is_open else None,
    }


def _progress_text(job_id: str, progress: dict[str, Any]) -> str:
    if job_id not in progress:
        return ""
    return "running" if progress[job_id] is None else "running, step {} of {}".format(*progress[job_id])


def _print_outcome(outcome: dict[str, Any], *, as_json: bool) -> None:
    from streamdp.privacy.exact import as_fraction, decimal_text

    if as_json:
        print(json.dumps({name: value for name, value in outcome.items() if name not in ("format", "kind")}))
        return
    print(f"job {outcome['id']}: {outcome['state']}" + (f", {outcome['reason']}" if "reason" in outcome else ""))
    if outcome["time_point"] is not None:
        spent = decimal_text(as_fraction(outcome["epsilon"]))
        print(f"time point {outcome['time_point']}, epsilon {spent} spent")
    if "result" in outcome:
        _print_result(outcome["result"])


def _print_result(result: dict[str, Any]) -> None:
    """Short values as they are; a long list, such as a synopsis, only with --json."""
    for name, value in result.items():
        text = json.dumps(value)
        if len(text) <= 2_000:
            print(f"{name:16} {text}")
        else:
            print(f"{name:16} (long; --json shows it)")
