"""A process that writes to a log until it is killed or done: `log_feeder.py ROOT IDENTITY COUNT TOPIC...`.

Prints the number of every append after it is acknowledged.
"""

from __future__ import annotations

import sys

from streamdp.transport.base import Message
from streamdp.transport.filelog import FileLog

if __name__ == "__main__":
    root, identity, count, *topics = sys.argv[1:]
    log = FileLog(root, segment_bytes=20_000)
    writer = log.writer(identity)
    begin = log.end_offsets(topics[:1]).popitem()[1] if len(topics) > 1 else 0
    for number in range(begin, begin + int(count)):
        value = f"{identity} {number}".encode()
        writer.append([Message(topic, value.ljust(number % 300), b"k") for topic in topics])
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
