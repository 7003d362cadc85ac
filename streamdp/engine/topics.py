"""The topics of a stream besides its input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Topics:
    """What the stream writes, and `jobs`, where it is asked for jobs."""

    prefix: str
    releases: str
    latest: str
    head: str
    results: str
    jobs: str

    @classmethod
    def of(cls, prefix: str) -> Topics:
        return cls(
            prefix, f"{prefix}.releases", f"{prefix}.latest", f"{prefix}.head", f"{prefix}.results", f"{prefix}.jobs"
        )

    def rows(self, job_id: str) -> str:
        """The rows that one job made."""
        return f"{self.prefix}.rows.{job_id}"

    def is_rows(self, topic: str) -> bool:
        return topic.startswith(f"{self.prefix}.rows.")
