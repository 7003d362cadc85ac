"""What errors of the client mean, without a broker: every type it has, those it lets through, and those unknown."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import ssl
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kafka import errors

from streamdp.transport import kafka as kafka_transport
from streamdp.transport.base import (
    Fenced,
    OffsetGone,
    TopicPartition,
    TransportError,
    UnknownTopic,
    Unreachable,
)
from streamdp.transport.batch import Blobs, RecordBatch
from streamdp.transport.guard import Guard
from streamdp.transport.kafka_batches import Fetched
from streamdp.transport.kafka_errors import MEANINGS, TRANSACTION_TIMEOUT_MS, Meaning, listed, translated
from streamdp.transport.kafka_keys import client_settings

SETTINGS = client_settings({"bootstrap.servers": "here:9092"}, "output")
BASES = (errors.KafkaError, errors.BrokerResponseError)
"""They say nothing by themselves, so what inherits from them alone must be in the table."""
CLIENT_ERRORS = [
    each
    for each in vars(errors).values()
    if inspect.isclass(each) and issubclass(each, BaseException) and each not in BASES
]


def raised(error: BaseException, since: float | None = None) -> BaseException:
    with pytest.raises(BaseException) as caught, translated(SETTINGS, since):
        raise error
    return caught.value


@pytest.mark.parametrize("kind", CLIENT_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_client_is_in_the_table(kind: type[BaseException]) -> None:
    assert listed(kind) is not None


def test_the_table_lists_no_type_that_it_inherits_anyway() -> None:
    for kind, meaning in MEANINGS.items():
        inherited = next((MEANINGS[base] for base in kind.__mro__[1:] if base in MEANINGS), None)
        assert inherited is not meaning, kind


def test_the_bases_of_the_client_s_errors_are_not_in_the_table() -> None:
    assert not set(BASES) & set(MEANINGS)
    assert len(CLIENT_ERRORS) > 140


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownBrokerIdError(1),
        errors.KafkaTimeoutError("t"),
        errors.NodeNotReadyError("t"),
        errors.KafkaConnectionError("t"),
        errors.Cancelled("t"),
        errors.RequestTimedOutError(),
        errors.NotLeaderForPartitionError(),
        errors.CoordinatorNotAvailableError(),
        errors.OutOfOrderSequenceNumberError(),
        errors.InvalidTxnStateError(),
        errors.InvalidReplicationFactorError(),
        errors.KafkaError("Could not execute transactional request for unknown reasons: UnknownBrokerIdError: 1"),
        errors.KafkaError("Cannot perform send", errors.UnknownBrokerIdError(1)),
        ConnectionResetError(),
        TimeoutError(),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        asyncio.IncompleteReadError(b"", 4),
        RuntimeError("Detected more than one in-flight transactional request."),
        KeyError("node"),
    ],
    ids=repr,
)
def test_what_passes_is_an_outage(error: BaseException) -> None:
    assert type(raised(error)) is Unreachable


def test_a_transaction_in_disorder_is_nothing_new(caplog: pytest.LogCaptureFixture) -> None:
    """As when one of three brokers pauses: the client has a text for it, but no type."""
    assert type(raised(errors.KafkaError("Could not add partitions to transaction"))) is Unreachable
    assert not caplog.records


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (errors.OffsetOutOfRangeError(), OffsetGone, "records were deleted"),
        (errors.LogTruncationError({}), OffsetGone, "records were deleted"),
        (errors.UnknownTopicOrPartitionError(), UnknownTopic, "does not exist at here:9092"),
        (errors.SaslAuthenticationFailedError(), TransportError, r"check sasl\.username"),
        (ssl.SSLCertVerificationError(), TransportError, r"check ssl\.ca\.location"),
        (errors.TopicAuthorizationFailedError("t"), TransportError, r"\(TopicAuthorizationFailedError\).*docs/kafka"),
        (errors.TransactionalIdAuthorizationFailedError(), TransportError, "grant the user"),
        (errors.MessageSizeTooLargeError(), TransportError, "check the settings of topics"),
        (errors.IncompatibleBrokerVersion(), TransportError, r"Kafka 2\.8 or newer"),
        (errors.InvalidRequestError(), TransportError, "please report it"),
        (errors.ProducerFencedError(), Fenced, "second daemon"),
        (errors.InvalidProducerEpochError(), Fenced, "second daemon"),
        (errors.KafkaError("Cannot perform send", errors.ProducerFencedError()), Fenced, "second daemon"),
    ],
    ids=lambda value: repr(value) if isinstance(value, BaseException) else None,
)
def test_what_does_not_pass_says_what_to_do(error: BaseException, kind: type[BaseException], says: str) -> None:
    found = raised(error)
    assert type(found) is kind
    assert pytest.raises(kind, match=says).matches(found)  # type: ignore[type-var]


def test_no_text_of_an_error_decides_or_is_passed_on() -> None:
    found = raised(errors.KafkaError("ProducerFenced TimedOut secret payload"))
    assert type(found) is Unreachable
    assert "secret" not in str(found)


@pytest.mark.parametrize("kind", [TypeError, AttributeError, AssertionError, MemoryError, RecursionError])
def test_a_mistake_in_a_program_stays_what_it_is(kind: type[Exception]) -> None:
    assert MEANINGS[kind] is Meaning.DEFECT
    assert type(raised(kind("here"))) is kind


def test_a_transaction_that_outlived_its_time_was_not_fenced_by_another_writer() -> None:
    begin = time.monotonic()
    assert type(raised(errors.ProducerFencedError(), since=begin)) is Fenced
    assert type(raised(errors.ProducerFencedError(), since=begin - TRANSACTION_TIMEOUT_MS / 1000)) is Unreachable


def test_an_unknown_type_is_an_outage_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    class NewInTheNextVersionError(errors.KafkaError):
        pass

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert type(raised(NewInTheNextVersionError("secret"))) is Unreachable
    [record] = caplog.records
    assert record.fields == {"type": "NewInTheNextVersionError"}
    assert "secret" not in caplog.text


class _Consumer:
    """A client that answers each poll with the next of these, or fails with it."""

    answers: list[Any]

    def __init__(self, **_: object) -> None:
        self._fetcher = SimpleNamespace(PartitionRecords=None)

    def poll(self, **_: object) -> Any:
        answer = self.answers.pop(0) if self.answers else {}
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def paused(self) -> set[object]:
        return set()

    def nothing(self, *_: object, **__: object) -> None:
        pass

    assign = seek = pause = resume = close = nothing


def fetched(name: TopicPartition, offset: int) -> dict[TopicPartition, list[Fetched]]:
    one = np.array([offset], np.int64)
    blobs = Blobs(b"v", np.array([0, 1], np.int64))
    records = RecordBatch(name.topic, name.partition, one, one, blobs, blobs, None)
    return {name: [Fetched(iter([records]), offset + 1, 0)]}


def test_what_was_read_before_an_error_is_returned_and_the_error_comes_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions have moved past it: raising at once would lose it."""
    name = TopicPartition("t", 0)
    failure = errors.UnknownBrokerIdError(1)
    monkeypatch.setattr(kafka_transport, "KafkaConsumer", _Consumer)
    _Consumer.answers = [fetched(name, 0), failure, failure, fetched(name, 1)]
    reader = kafka_transport.KafkaReader(SETTINGS, {name: 0}, 1_000_000, Guard(), lambda name: 0)
    assert [batch.offsets.tolist() for batch in reader.poll()] == [[0]]
    with pytest.raises(Unreachable):
        reader.poll()
    assert [batch.offsets.tolist() for batch in reader.poll()] == [[1]]
    assert reader.positions() == {name: 2}
