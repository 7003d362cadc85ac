"""What every error of kafka-python means, by its type: one table, and the errors of ours that they become.

No text is searched: it changes with the client's version, and it may hold a payload, so only an error's type is passed
on. The type nearest in the inheritance of an error decides. A type that the table does not hold is taken for an outage
and tried again, with a warning: ending the daemon for an error nobody has met would be worse than waiting.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import ssl
import time
from collections.abc import Iterator
from enum import Enum

from kafka import errors

from streamdp.errors import StreamdpError
from streamdp.transport.base import Fenced, OffsetGone, TransportError, UnknownTopic, Unreachable
from streamdp.transport.kafka_keys import KafkaSettings

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 120_000
"""Longer than sending and committing may take, so that no broker ends a transaction that may still be committed."""


class Meaning(Enum):
    """What follows from an error; the value is what a person is told where that is the same for all of a kind."""

    AWAY = (
        # A client may see a refused login as a connection that was closed, so the login is named too.
        "no broker answers at {servers}: check bootstrap.servers, security.protocol and the login (sasl.username, "
        "sasl.password), that the broker runs and that the network lets this machine reach it ({type})"
    )
    FENCED = "another writer has taken over this identity: is a second daemon running?"
    GONE = "a position lies outside what its partition holds: records were deleted, or the topic is not the same"
    NO_TOPIC = "a topic or partition does not exist at {servers}"
    NO_LOGIN = "the broker at {servers} refused the login: check sasl.username, sasl.password and sasl.mechanism"
    NO_TLS = "TLS with the broker at {servers} failed: check ssl.ca.location, the other ssl keys and security.protocol"
    NO_RIGHT = "the broker at {servers} does not allow this ({type}): grant the user the rights in docs/kafka.md"
    TOO_OLD = "the broker at {servers} does not know a request of streamdp's ({type}): Kafka 2.8 or newer is needed"
    REFUSED = "the broker at {servers} refuses a message or a topic ({type}): check the settings of topics and broker"
    DEFECT = "Kafka at {servers} failed: {type}. This is a defect of streamdp: please report it"


_TABLE: dict[Meaning, tuple[type[BaseException], ...]] = {
    Meaning.AWAY: (
        errors.RetriableError,  # About half of all types. Those below are also cured by waiting, or by a new client.
        errors.UnknownBrokerIdError,  # A broker that paused has left the client's list of them.
        errors.UnknownError,
        errors.BrokerNotAvailableError,
        errors.CorruptRecordError,  # Kafka's own clients ask again: another replica may be sound.
        errors.KafkaProtocolError,
        errors.QuotaViolationError,
        errors.UnrecognizedBrokerVersion,  # It could not be found out, or not in time.
        errors.IllegalStateError,  # A client that was closed or confused by an outage.
        errors.InvalidReplicationFactorError,  # Fewer brokers are there than a topic has replicas.
        errors.OperationNotAttemptedError,
        errors.LogDirNotFoundError,
        errors.ReassignmentInProgressError,
        errors.NoReassignmentInProgressError,
        # A transaction that lost its state. The next writer settles it.
        errors.TransactionAbortedError,
        errors.TransactionAbortableError,
        errors.TransactionCoordinatorFencedError,
        errors.TransactionalIdNotFoundError,
        errors.OutOfOrderSequenceNumberError,
        errors.DuplicateSequenceNumberError,
        errors.InvalidTxnStateError,
        errors.InvalidProducerIdMappingError,
        errors.UnknownProducerIdError,
        # Brokers and controllers among themselves.
        errors.StaleControllerEpochError,
        errors.StaleBrokerEpochError,
        errors.InconsistentVoterSetError,
        errors.InvalidUpdateVersionError,
        errors.FeatureUpdateFailedError,
        errors.SnapshotNotFoundError,
        errors.DuplicateBrokerRegistrationError,
        errors.BrokerIdNotRegisteredError,
        errors.InconsistentClusterIdError,
        errors.IneligibleReplicaError,
        errors.NewLeaderElectedError,
        errors.MismatchedEndpointTypeError,
        errors.UnsupportedEndpointTypeError,
        errors.UnknownControllerIdError,
        errors.InvalidRegistrationError,
        errors.InvalidVoterKeyError,
        errors.DuplicateVoterError,
        errors.VoterNotFoundError,
        # What the client may let through of the operating system and of its event loop.
        OSError,
        EOFError,
        RuntimeError,
        asyncio.CancelledError,
        asyncio.InvalidStateError,
        concurrent.futures.CancelledError,
        concurrent.futures.InvalidStateError,
    ),
    Meaning.FENCED: (errors.ProducerFencedError, errors.InvalidProducerEpochError),
    Meaning.GONE: (
        errors.OffsetOutOfRangeError,
        errors.LogTruncationError,
        errors.NoOffsetForPartitionError,
        errors.PositionOutOfRangeError,
        errors.OffsetMovedToTieredStorageError,
    ),
    Meaning.NO_TOPIC: (errors.UnknownTopicOrPartitionError,),
    Meaning.NO_LOGIN: (
        errors.SaslAuthenticationFailedError,
        errors.UnsupportedSaslMechanismError,
        errors.IllegalSaslStateError,
        errors.SecurityDisabledError,
        errors.UnacceptableCredentialError,
        errors.DelegationTokenAuthDisabledError,
        errors.DelegationTokenNotFoundError,
        errors.DelegationTokenOwnerMismatchError,
        errors.DelegationTokenRequestNotAllowedError,
        errors.DelegationTokenExpiredError,
        errors.InvalidPrincipalTypeError,
        errors.PrincipalDeserializationFailureError,
    ),
    Meaning.NO_TLS: (ssl.SSLCertVerificationError,),
    Meaning.NO_RIGHT: (errors.AuthorizationError,),
    Meaning.TOO_OLD: (errors.UnsupportedVersionError,),
    Meaning.REFUSED: (
        errors.MessageSizeTooLargeError,
        errors.RecordListTooLargeError,
        errors.InvalidRecordError,
        errors.InvalidTimestampError,
        errors.InvalidTopicError,
        errors.TopicAlreadyExistsError,
        errors.TopicDeletionDisabledError,
        errors.InvalidPartitionsError,
        errors.InvalidReplicationAssignmentError,
        errors.InvalidConfigurationError,
        errors.PolicyViolationError,
        errors.InvalidTransactionTimeoutError,
        errors.UnsupportedForMessageFormatError,
        errors.UnsupportedCompressionTypeError,
        errors.UnsupportedCodecError,
    ),
    Meaning.DEFECT: (
        errors.NoError,
        errors.IllegalArgumentError,
        errors.KafkaConfigurationError,
        errors.InvalidRequestError,
        errors.InvalidFetchRequestError,
        errors.InvalidRequiredAcksError,
        # Groups of consumers, offsets on the broker, shares, telemetry, resources: nothing of this is ever asked for.
        errors.CommitFailedError,
        errors.OffsetMetadataTooLargeError,
        errors.InvalidCommitOffsetSizeError,
        errors.IllegalGenerationError,
        errors.InconsistentGroupProtocolError,
        errors.InvalidGroupIdError,
        errors.UnknownMemberIdError,
        errors.InvalidSessionTimeoutError,
        errors.RebalanceInProgressError,
        errors.NonEmptyGroupError,
        errors.GroupIdNotFoundError,
        errors.MemberIdRequiredError,
        errors.GroupMaxSizeReachedError,
        errors.FencedInstanceIdError,
        errors.GroupSubscribedToTopicError,
        errors.FencedMemberEpochError,
        errors.UnreleasedInstanceIdError,
        errors.UnsupportedAssignorError,
        errors.StaleMemberEpochError,
        errors.UnknownSubscriptionIdError,
        errors.TelemetryTooLargeError,
        errors.InvalidRecordStateError,
        errors.FencedStateEpochError,
        errors.ResourceNotFoundError,
        errors.DuplicateResourceError,
        # Mistakes in a program, and no memory: never to be hidden by trying again.
        TypeError,
        AttributeError,
        NameError,
        AssertionError,
        NotImplementedError,
        RecursionError,
        MemoryError,
    ),
}
MEANINGS = {kind: meaning for meaning, kinds in _TABLE.items() for kind in kinds}
_OURS = {
    Meaning.AWAY: Unreachable,
    Meaning.FENCED: Fenced,
    Meaning.GONE: OffsetGone,
    Meaning.NO_TOPIC: UnknownTopic,
}
_warned: set[type[BaseException]] = set()


def listed(kind: type[BaseException]) -> Meaning | None:
    """What the table says of a type, itself or what it inherits from; None when nothing."""
    return next((MEANINGS[each] for each in kind.__mro__ if each in MEANINGS), None)


def meaning_of(error: BaseException) -> Meaning:
    """What an error means; says so once for each type that the table does not know."""
    kind = type(error)
    if kind is errors.KafkaError:
        # The client puts others into one of these. One with a text alone is a transaction that an outage confused.
        inner = next((each for each in error.args if isinstance(each, BaseException)), None)
        return Meaning.AWAY if inner is None else meaning_of(inner)
    meaning = listed(kind)
    if meaning is None and kind not in _warned:
        _warned.add(kind)
        log.warning(
            "the Kafka client failed in a way that streamdp does not know; taken for an outage and tried again",
            extra={"fields": {"type": kind.__name__}},
        )
    return meaning or Meaning.AWAY


def explain(meaning: Meaning, settings: KafkaSettings, error: BaseException) -> TransportError:
    """Our error for one of the client's."""
    return _OURS.get(meaning, TransportError)(meaning.value.format(servers=settings.servers, type=type(error).__name__))


@contextlib.contextmanager
def translated(settings: KafkaSettings, since: float | None = None) -> Iterator[None]:
    """Turn the client's errors into ours; a mistake in a program stays what it is.

    `since` is when a transaction began. A broker ends one that lasts too long and then calls its producer fenced; that
    happens when this process was stopped for so long, and is not the work of another writer.
    """
    try:
        yield
    except StreamdpError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        meaning = meaning_of(error)
        if meaning is Meaning.DEFECT and not isinstance(error, errors.KafkaError):
            raise
        is_overdue = since is not None and time.monotonic() - since > TRANSACTION_TIMEOUT_MS / 1000
        if meaning is Meaning.FENCED and is_overdue:
            raise Unreachable("a publication took longer than its transaction may last") from error
        raise explain(meaning, settings, error) from error
