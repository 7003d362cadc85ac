"""Messages in, columns out: decode, check, digest; what is turned away goes to the dead letters with a reason."""

from streamdp.ingest.dead_letters import DeadLetterFile, DeadLetters, DeadLetterTopic, last_offsets
from streamdp.ingest.decoded import Decoded, Reason
from streamdp.ingest.decoder import MAX_RECORD_BYTES, Decoder
from streamdp.ingest.digest import Digester

__all__ = [
    "MAX_RECORD_BYTES",
    "DeadLetterFile",
    "DeadLetterTopic",
    "DeadLetters",
    "Decoded",
    "Decoder",
    "Digester",
    "Reason",
    "last_offsets",
]
