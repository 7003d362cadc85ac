"""A stream that leaves half of its epsilon to jobs, and what must be true of jobs whatever happened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from harness import Stream
from waiting import PATIENCE

from streamdp import messages
from streamdp.jobs.request import encode_cancel, encode_request
from streamdp.journal import JournalReader, verify
from streamdp.result_messages import join_result
from streamdp.transport.base import Message
from streamdp.transport.filelog import FileLog

LAUNCHER = Path(__file__).with_name("job_launcher.py")


@dataclass
class JobStream(Stream):
    guarantee: str = "window = 10000"
    jobs: str = 'time_limit = "60s"\nworkers = 2'
    program: ClassVar[list[str]] = [str(LAUNCHER)]

    def __post_init__(self) -> None:
        super().__post_init__()
        text = self.path.read_text().replace('share = "0.5"', 'share = "0.25"')
        self.path.write_text(f"{text}\n[jobs]\n{self.jobs}\n")

    def command(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(LAUNCHER), "job", verb, str(self.path), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def ask(self, job_id: str, epsilon: str = "0.01", kind: str = "test", **params: object) -> None:
        self.request(encode_request(job_id, kind, epsilon, params))

    def cancel(self, job_id: str) -> None:
        self.request(encode_cancel(job_id))

    def request(self, *values: bytes | None) -> None:
        self.append([Message(f"{self.name}.jobs", value, key=b"k", partition=0) for value in values])

    def results(self) -> list[dict]:
        """Every outcome that is out, in order."""
        parts: dict[str, list[dict]] = {}
        whole = []
        for value in self.outputs("results"):
            header = messages.decode(value).header
            parts.setdefault(header["id"], []).append(header)
            if (joined := join_result(parts[header["id"]])) is not None:
                del parts[header["id"]]
                whole.append(joined)
        assert not parts
        return whole

    def result(self, job_id: str) -> dict | None:
        return next((each for each in self.results() if each["id"] == job_id), None)

    def wait_for(self, *job_ids: str, process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> list[dict]:
        self.wait(lambda: {each["id"] for each in self.results()} >= set(job_ids), process, seconds)
        return [self.result(job_id) for job_id in job_ids]

    def job(self, job_id: str):
        if not self.config.journal_path.exists():
            return None
        with JournalReader.open(self.config.journal_path) as journal:
            return journal.job(job_id)

    def count_below_now(self) -> Counter[tuple[str, int]]:
        """What the whole input holds, counted by other means."""
        log = FileLog(self.directory / "log")
        try:
            return self.count_below(log.end_offsets([self.topic]))
        finally:
            log.close()

    def check_ledger(self) -> None:
        """As for any stream; and each job that was admitted is charged once, and said so once."""
        with JournalReader.open(self.config.journal_path) as journal:
            ledger = journal.read_ledger(whole=True)
            published = journal.published_until()
            jobs = [job for job in journal.jobs() if job.state != "refused"]
        told = Counter(
            (m.header["time_point"], m.header["histogram"], Fraction(epsilon), purpose)
            for m in map(messages.decode, self.outputs())
            for epsilon, purpose in m.header.get("charges", [])
        )
        entries = [entry for entry in ledger.entries if not entry.counted and entry.time_point <= published]
        assert told == Counter((e.time_point, e.owner, e.epsilon, e.purpose) for e in entries)
        charges = Counter((e.time_point, e.owner, e.epsilon) for e in ledger.entries if e.counted)
        assert charges == Counter((job.time_point, job.owner, job.epsilon) for job in jobs)
        assert all(times == 1 for times in charges.values())
        outcomes = Counter(each["id"] for each in self.results() if each["state"] != "refused")
        assert all(times == 1 for times in outcomes.values())
        assert verify(self.config.journal_path) == []

    def runs(self, path: Path) -> list[int]:
        """The process ids of the workers that ran a job, in order."""
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    @staticmethod
    def is_alive(pid: int) -> bool:
        try:
            return "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]
        except OSError:
            return False

    def json(self, verb: str, *words: str) -> dict:
        done = self.command(verb, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
