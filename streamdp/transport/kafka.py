"""Kafka as a `Transport`, on kafka-python: only this file and `kafka_errors.py` import it. The choice is argued in
docs/adr/0007-kafka-client.md.

Readers are assigned partitions by hand and read only what is committed; no offset is kept on the broker. A writer is a
transactional producer: opening one fences every older one of the same identity, and `append` is one transaction.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafka import TopicPartition as ClientPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport
from kafka.protocol.consumer import IsolationLevel, OffsetForLeaderEpochRequest, OffsetSpec

from streamdp.errors import ConfigurationError, StreamdpError
from streamdp.transport.base import (
    MAX_RECORD_BYTES,
    POLL_BYTES,
    UNKNOWN_EPOCH,
    Message,
    TopicPartition,
    TopicSpec,
    TransportError,
    Truncated,
    UnknownTopic,
    Unreachable,
)
from streamdp.transport.batch import RecordBatch
from streamdp.transport.guard import Guard
from streamdp.transport.kafka_batches import Aborted, Buffered, Fetched, read_fetched
from streamdp.transport.kafka_errors import TRANSACTION_TIMEOUT_MS, Meaning, explain, meaning_of, translated
from streamdp.transport.kafka_keys import KafkaSettings

Answer = TypeVar("Answer")

_EpochPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition

CONNECT_ATTEMPT_MS = 1_500
"""kafka-python keeps a refused login to itself and tries again; it gets this long before the cause is looked at."""
RETRY_SECONDS = 0.2
VISIBLE_SECONDS = 0.005
SPREAD_SECONDS = 5.0
"""How long a new topic may take until every broker knows it. The client asks any of them."""
OLDEST_BROKER = (2, 8)
"""The first with topic ids, and with transactions that tell a fenced producer so."""

# What the client has to say reaches the caller as an error. Its log repeats every attempt to reconnect, and keys and
# values at level DEBUG.
logging.getLogger("kafka").setLevel(logging.CRITICAL)


# kafka-python 3.0 leaves the socket open when a connection or a TLS handshake fails, one for each attempt while a
# broker is away.
_connect_socket, _handshake = KafkaNetSocket.sock_connect, KafkaSSLTransport.handshake


async def _connect_or_close(self: KafkaNetSocket, net: Any, sock: socket.socket, *rest: Any, **more: Any) -> Any:
    try:
        return await _connect_socket(self, net, sock, *rest, **more)
    except BaseException:
        sock.close()
        raise


async def _handshake_or_close(self: KafkaSSLTransport) -> None:
    try:
        await _handshake(self)
    except BaseException:
        self.abort()
        raise


KafkaNetSocket.sock_connect, KafkaSSLTransport.handshake = _connect_or_close, _handshake_or_close


class KafkaTransport:
    """Implements `Transport`. Its methods may be called from any thread; a reader and a writer belong to one each."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._admin = _connect(settings)
        self._cluster_id: str | None = None
        self._created: dict[str, float] = {}
        self._patience = settings.of("admin")["request_timeout_ms"] / 1000

    def cluster_id(self) -> str:
        if self._cluster_id is None:
            self._cluster_id = str(self._ask(self._admin.describe_cluster)["cluster_id"])
        return self._cluster_id

    def topic_id(self, topic: str) -> str:
        found = self._describe([topic])[topic]["topic_id"]
        if uuid.UUID(str(found)).int == 0:
            raise TransportError("the broker gives topics no ids: Kafka 2.8 or newer is needed")
        return str(found)

    def partitions(self, topic: str) -> list[int]:
        return sorted(part["partition_index"] for part in self._describe([topic])[topic]["partitions"])

    def begin_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return self._offsets(topics, OffsetSpec.EARLIEST)

    def end_offsets(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Where a reader of committed records comes to now: before the first transaction that is still open."""
        return self._offsets(topics, OffsetSpec.LATEST)

    def high_watermarks(self, topics: Iterable[str]) -> dict[TopicPartition, int]:
        return self._offsets(topics, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)

    def ends_of(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        ends = self.list_offsets(epochs, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
        known = {ClientPartition(*name): epoch for name, epoch in epochs.items() if epoch != UNKNOWN_EPOCH}
        if known:
            found = self._ask(lambda: self._admin._manager.run(_epoch_ends, self._admin, known))
            ends |= {TopicPartition(*name): min(end, ends[name]) for name, end in found.items()}
        return ends

    def _end_of(self, name: TopicPartition) -> int:
        """Its high watermark: a cut must not fall because somebody's transaction is open."""
        return self.list_offsets([name], OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)[name]

    def deletes_kept_ms(self, topics: Iterable[str]) -> int | None:
        policies = self._policies(topics, ["cleanup.policy", "delete.retention.ms"])
        compacted = [policy for policy in policies.values() if "compact" in policy["cleanup.policy"]]
        return min((int(policy["delete.retention.ms"]) for policy in compacted), default=None)

    def ensure_topics(self, specs: Iterable[TopicSpec]) -> None:
        for spec in specs:
            try:
                self._check(spec)
            except UnknownTopic:
                self._create(spec)

    def reader(
        self,
        positions: Mapping[TopicPartition, int],
        max_record_bytes: int = MAX_RECORD_BYTES,
        guard: Guard | None = None,
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> KafkaReader:
        self._describe({name.topic for name in positions})
        with translated(self._settings):
            return KafkaReader(self._settings, positions, max_record_bytes, guard or Guard(), self._end_of, epochs)

    def writer(self, identity: str) -> KafkaWriter:
        with translated(self._settings):
            return KafkaWriter(self._settings, identity, self)

    def close(self) -> None:
        self._admin.close()

    def _offsets(
        self, topics: Iterable[str], which: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[TopicPartition, int]:
        described = self._describe(topics)
        return self.list_offsets(
            [
                TopicPartition(topic, part["partition_index"])
                for topic in described
                for part in described[topic]["partitions"]
            ],
            which,
            isolation,
        )

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        which: OffsetSpec = OffsetSpec.LATEST,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        """For partitions known to exist, what `end_offsets` gives, or another of Kafka's marks."""
        wanted = {ClientPartition(*name): which for name in sorted(partitions)}
        if not wanted:
            return {}
        found = self._ask(lambda: self._admin.list_partition_offsets(wanted, isolation_level=isolation))
        return {TopicPartition(*name): found[name].offset for name in wanted}

    def _describe(self, topics: Iterable[str]) -> dict[str, dict[str, Any]]:
        names = list(topics)

        def ask() -> dict[str, dict[str, Any]]:
            found = {topic["name"]: topic for topic in self._admin.describe_topics(names)} if names else {}
            for topic in found.values():
                for part in (topic, *topic["partitions"]):
                    is_new = time.monotonic() < self._created.get(topic["name"], 0.0) + SPREAD_SECONDS
                    if part["error_code"] == errors.UnknownTopicOrPartitionError.errno and not is_new:
                        raise UnknownTopic(f"topic '{topic['name']}' does not exist at {self._settings.servers}")
                    if part["error_code"]:
                        raise errors.for_code(part["error_code"])
            return found

        return self._ask(ask)

    def _check(self, spec: TopicSpec) -> None:
        partitions = len(self._describe([spec.name])[spec.name]["partitions"])
        cleanup = self._policies([spec.name], ["cleanup.policy"])[spec.name]["cleanup.policy"]
        for what, is_so, needed in (("partitions", partitions, spec.partitions), ("cleanup", cleanup, spec.cleanup)):
            if is_so != needed:
                raise TransportError(
                    f"topic '{spec.name}' exists with {what} = {is_so}, but {needed} is needed: choose another topic "
                    "or move this one away"
                )

    def _policies(self, topics: Iterable[str], names: list[str]) -> dict[str, dict[str, str]]:
        """The named settings of each topic."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic, names) for topic in topics]
        found = self._ask(lambda: self._admin.describe_configs(resources, config_filter="all"))["topic"]
        return {topic: {name: found[topic][name]["value"] for name in names} for topic in found}

    def _create(self, spec: TopicSpec) -> None:
        policies: dict[str, str] = {"cleanup.policy": spec.cleanup}
        if spec.retention_ms is not None:
            policies["retention.ms"] = str(spec.retention_ms)
        wanted = {spec.name: {"num_partitions": spec.partitions, "configs": policies}}
        try:
            self._ask(lambda: self._admin.create_topics(wanted, wait_for_metadata=True))
        except TransportError as error:
            if not isinstance(error.__cause__, errors.TopicAlreadyExistsError):
                raise
        self._created[spec.name] = time.monotonic()
        self._check(spec)  # Somebody else may have been quicker.

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        """The answer to a request that may be repeated, which it is while the broker is away, for a bounded time."""
        deadline = time.monotonic() + self._patience
        with translated(self._settings):
            while True:
                try:
                    return call()
                except StreamdpError:
                    raise
                except Exception as error:
                    # A topic that was just made is not known everywhere at once.
                    may_pass = meaning_of(error) in (Meaning.AWAY, Meaning.NO_TOPIC)
                    if not may_pass or time.monotonic() > deadline:
                        raise
                    # A broker that was away has left the client's list, which it would renew in five minutes.
                    self._admin._manager.cluster.request_update()
                    time.sleep(RETRY_SECONDS)


class KafkaReader:
    """Implements `Reader`.

    Holds, besides what it returns, at most one fetch of each partition as it came, and a piece of it decompressed.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        positions: Mapping[TopicPartition, int],
        max_record_bytes: int,
        guard: Guard,
        end_of: Callable[[TopicPartition], int],
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._settings = settings
        self._end_of = end_of
        self._guard = guard
        self._partitions: dict[TopicPartition, Buffered] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._truncated: dict[TopicPartition, int] = {}
        self._turn = 0
        self._consumer = KafkaConsumer(
            **settings.of("consumer"),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            check_crcs=False,  # `read_fetched` does.
            metrics_enabled=False,
            kafka_client=_make_client,
        )
        self._consumer._fetcher.PartitionRecords = partial(_FetchedColumns, max_record_bytes, guard)
        self.assign_more(positions)
        self._epochs |= epochs or {}

    def poll(
        self, max_bytes: int = POLL_BYTES, timeout: float = 0.0, until: Mapping[TopicPartition, int] | None = None
    ) -> list[RecordBatch]:
        limits = until or {}
        deadline = time.monotonic() + timeout
        found: list[RecordBatch] = []
        left = max_bytes
        self._turn += 1
        while True:
            if self._truncated and not found:
                ends, self._truncated = self._truncated, {}
                raise Truncated(ends)
            try:
                with translated(self._settings):
                    for name in self._in_turn():
                        while left > 0 and (batch := self._partitions[name].take(left, limits.get(name))) is not None:
                            found.append(batch)
                            left -= batch.nbytes
                    if left <= 0 or not self._fetchable(limits):
                        break
                    wait = 0.0 if found else max(0.0, deadline - time.monotonic())
                    answer = self._fetch(int(wait * 1000))
            except TransportError:
                if found:  # The positions have moved past it. What is wrong shows again at the next poll.
                    break
                raise
            for name, fetched in answer.items():
                self._partitions[TopicPartition(*name)].put(fetched[0])
                if fetched[0].leader_epoch != UNKNOWN_EPOCH:
                    self._epochs[TopicPartition(*name)] = fetched[0].leader_epoch
            if not answer and (found or (time.monotonic() >= deadline and not self._truncated)):
                break
        return found

    def positions(self) -> dict[TopicPartition, int]:
        return {name: partition.position for name, partition in self._partitions.items()}

    def epochs(self) -> dict[TopicPartition, int]:
        """Kafka's leader epochs. Whatever the leader of a partition has below its end is one history."""
        return dict(self._epochs)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(ClientPartition(*partition), offset)
        self._partitions[partition] = Buffered(offset, self._guard)
        self._epochs[partition] = UNKNOWN_EPOCH

    def assign_more(self, positions: Mapping[TopicPartition, int]) -> None:
        fresh = {name: offset for name, offset in positions.items() if name not in self._partitions}
        if fresh:
            self._consumer.assign([ClientPartition(*name) for name in (*self._partitions, *fresh)])
            for name, offset in fresh.items():
                self.seek(name, offset)

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def _fetch(self, timeout_ms: int) -> dict[ClientPartition, list[Fetched]]:
        """What came. Where the log has lost its end, the client finds out when it meets the new leader."""
        try:
            found: dict[ClientPartition, list[Fetched]] = self._consumer.poll(timeout_ms=timeout_ms, max_records=1)
            return found
        except errors.LogTruncationError as error:
            for name, cut in error.divergent_offsets.items():
                # A leader that knows nothing of what was read: everything it has is to be read.
                end = self._consumer.beginning_offsets([name])[name] if cut is None else cut.offset
                self._go_back(TopicPartition(*name), end, UNKNOWN_EPOCH if cut is None else cut.leader_epoch)
        except errors.OffsetOutOfRangeError as error:
            [(name, position)] = error.args[0].items()
            if position < self._consumer.beginning_offsets([name])[name]:
                raise
            self._go_back(TopicPartition(*name), self._end_of(TopicPartition(*name)), UNKNOWN_EPOCH)
        return {}

    def _go_back(self, name: TopicPartition, end: int, epoch: int) -> None:
        self._truncated[name] = end
        self.seek(name, min(end, self._partitions[name].position))
        self._epochs[name] = epoch

    def _in_turn(self) -> list[TopicPartition]:
        """Every partition, another one first at each poll, so that none starves when polls are small."""
        names = list(self._partitions)
        first = self._turn % len(names) if names else 0
        return names[first:] + names[:first]

    def _fetchable(self, limits: Mapping[TopicPartition, int]) -> bool:
        """Pause what holds records or stands at its limit, resume the rest; whether anything is left to wait for."""
        wanted = {
            ClientPartition(*name)
            for name, partition in self._partitions.items()
            if partition.is_empty and (name not in limits or partition.position < limits[name])
        }
        paused = self._consumer.paused()
        everything = {ClientPartition(*name) for name in self._partitions}
        self._consumer.resume(*(paused & wanted))
        self._consumer.pause(*(everything - wanted - paused))
        return bool(wanted) or not everything


async def _epoch_ends(admin: KafkaAdminClient, epochs: Mapping[ClientPartition, int]) -> dict[ClientPartition, int]:
    """Where each leader epoch, or the last before it that the leader knows, ends in the leader's log (KIP-320)."""
    found: dict[ClientPartition, int] = {}
    for leader, partitions in (await admin._async_get_leader_for_partitions(set(epochs))).items():
        topics: dict[str, list[Any]] = {}
        for name in partitions:
            asked = _EpochPartition(partition=name.partition, current_leader_epoch=-1, leader_epoch=epochs[name])
            topics.setdefault(name.topic, []).append(asked)
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.items()))
        for topic in (await admin._manager.send(request, node_id=leader)).topics:
            for part in topic.partitions:
                if part.error_code:
                    raise errors.for_code(part.error_code)
                found[ClientPartition(topic.topic, part.partition)] = max(0, part.end_offset)  # -1: it knows none
    return found


class _FetchedColumns:
    """Stands in for the class that turns a fetch into records one by one inside kafka-python's consumer.

    It has what the consumer's fetcher uses of that class. `take` gives all at once, as a single item.
    """

    def __init__(
        self,
        max_record_bytes: int,
        guard: Guard,
        fetch_offset: int,
        tp: ClientPartition,
        records: Any,
        *_: object,
        aborted_transactions: Iterable[Any] | None = None,
        on_drain: Callable[[_FetchedColumns], None],
        **__: object,
    ) -> None:
        aborted = [Aborted(each.first_offset, each.producer_id) for each in aborted_transactions or ()]
        self.topic_partition = tp
        self.next_fetch_offset = fetch_offset
        self.leader_epoch = -1
        self.bytes_read: int = records.size_in_bytes()
        self._read = partial(
            read_fetched,
            TopicPartition(*tp),
            fetch_offset,
            records._buffer,
            aborted,
            max_record_bytes,
            guard,
        )
        self._is_left: bool = self.bytes_read > 0
        self._on_drain = on_drain

    def __bool__(self) -> bool:
        return self._is_left

    def take(self, _: int | None = None) -> list[Fetched]:
        fetched = self._read()
        self.next_fetch_offset, self.leader_epoch = fetched.position, fetched.leader_epoch
        self.drain()
        return [fetched]

    def drain(self) -> None:
        self._is_left = False
        self._on_drain(self)


class KafkaWriter:
    """Implements `Writer`.

    After an error that leaves the outcome open it refuses further appends: open a new writer, which ends the open
    transaction one way or the other, and only then read what the topics hold.
    """

    def __init__(self, settings: KafkaSettings, identity: str, transport: KafkaTransport) -> None:
        values = settings.of("producer")
        self._settings = settings
        self._send_seconds = values["delivery_timeout_ms"] / 1000
        self._end_ms = values["request_timeout_ms"]
        if values["delivery_timeout_ms"] + 2 * self._end_ms > TRANSACTION_TIMEOUT_MS:
            raise ConfigurationError(
                "[output.kafka] message.timeout.ms and twice socket.timeout.ms may be "
                f"{TRANSACTION_TIMEOUT_MS} together, the time a transaction may last"
            )
        self._transport = transport
        self._known: set[str] = set()
        self._is_broken = False
        self._producer = KafkaProducer(
            **values,
            transactional_id=identity,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            max_block_ms=values["delivery_timeout_ms"],
            metrics_enabled=False,
            kafka_client=_make_client,
        )
        self._transactions = self._producer._transaction_manager
        try:
            if self._producer.config["api_version"] < OLDEST_BROKER:
                raise TransportError("the broker is too old: Kafka 2.8 or newer is needed")
            self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def append(self, messages: Sequence[Message]) -> list[tuple[TopicPartition, int]]:
        if self._is_broken:
            raise Unreachable("this writer failed before: open a new one, and read what the topics hold")
        for topic in {message.topic for message in messages} - self._known:
            self._transport.partitions(topic)
            self._known.add(topic)
        if not messages:
            return []
        begin = time.monotonic()
        with translated(self._settings, since=begin):
            try:
                self._producer.begin_transaction()
                futures = [self._send(message) for message in messages]
                placed = [future.get(max(0.0, begin + self._send_seconds - time.monotonic())) for future in futures]
            except Exception as error:
                cause = self._cause(error)
                if isinstance(cause, StreamdpError) or meaning_of(cause) is not Meaning.AWAY:
                    self._give_up()
                else:
                    self._is_broken = True  # An abort would only wait for the broker once more.
                raise cause from None
            except BaseException:
                self._give_up()
                raise
            # Everything has been acknowledged: only the commit is in doubt now.
            try:
                self._end(self._transactions.begin_commit)
            except Exception as error:
                self._is_broken = True
                cause = self._cause(error)
                if meaning_of(cause) in (Meaning.FENCED, Meaning.DEFECT):
                    raise cause from None
                raise Unreachable(
                    "the broker did not confirm the end of a publication, so whether it is visible is not known: open "
                    "a new writer, and only then read what the topics hold"
                ) from error
        places = [(TopicPartition(each.topic, each.partition), each.offset) for each in placed]
        self._await_visible(dict(places))
        return places

    def close(self) -> None:
        self._is_broken = True
        try:
            self._producer.close(timeout=2)
        except Exception:
            # It gives up closing when messages cannot be delivered, and would leave its thread trying for ever.
            self._producer._sender.force_close()

    def _send(self, message: Message) -> Any:
        if message.key is None and message.value is None:
            raise TransportError("a message to Kafka needs a key or a value")
        partition = 0 if message.partition is None and message.key is None else message.partition
        return self._producer.send(
            message.topic, message.value, message.key, list(message.headers), partition, message.timestamp
        )

    def _await_visible(self, last: Mapping[TopicPartition, int]) -> None:
        """A commit is acknowledged a moment before its partitions show it. It is certain, so no failure here is one."""
        deadline = time.monotonic() + self._end_ms / 1000
        with contextlib.suppress(TransportError):
            while any(end <= last[name] for name, end in self._transport.list_offsets(last).items()):
                if time.monotonic() > deadline:
                    break  # Somebody else's transaction is open before ours.
                time.sleep(VISIBLE_SECONDS)

    def _give_up(self) -> None:
        """Abort, so that nothing of it is ever visible; what cannot be aborted now, the next writer's start aborts."""
        try:
            self._end(self._transactions.begin_abort)
        except Exception:
            self._is_broken = True

    def _cause(self, error: Exception) -> Exception:
        """The client says of a transaction that failed before only that it did, and keeps what it failed of."""
        last = self._transactions.last_error
        return last if type(error) is errors.KafkaError and isinstance(last, Exception) else error

    def _end(self, begin: Callable[[], Any]) -> None:
        """What the producer's own commit and abort do, but they wait without limit."""
        result = begin()
        self._producer._sender.wakeup()
        if not result.wait(timeout_ms=self._end_ms):
            raise errors.KafkaTimeoutError("the end of the transaction was not acknowledged")


class _Causes(logging.Filter):
    """Keeps what kafka-python only logs: why it could not connect."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.found += [each for each in arguments if isinstance(each, BaseException)]
        return False


_connecting = threading.Lock()


def _connect(settings: KafkaSettings) -> KafkaAdminClient:
    """The first connection, or a clear reason why there is none."""
    values = settings.of("admin")
    deadline = time.monotonic() + values["bootstrap_timeout_ms"] / 1000
    log, causes = logging.getLogger("kafka.net.manager"), _Causes()
    with _connecting:
        log.addFilter(causes)
        log.setLevel(logging.WARNING)
        try:
            while True:
                left = max(1, int((deadline - time.monotonic()) * 1000))
                values["bootstrap_timeout_ms"] = min(CONNECT_ATTEMPT_MS, left)
                opened: list[KafkaNetClient] = []
                values["kafka_client"] = partial(_make_client, opened)
                try:
                    return KafkaAdminClient(**values)
                except (errors.KafkaError, OSError, ValueError) as error:
                    for client in opened:
                        client.close()
                    refusal = _refusal(settings, [*causes.found, error])
                    if refusal is not None or time.monotonic() >= deadline:
                        raise (refusal or explain(Meaning.AWAY, settings, error)) from error
        finally:
            log.setLevel(logging.NOTSET)
            log.removeFilter(causes)


def _make_client(opened: list[KafkaNetClient] | None = None, **values: Any) -> KafkaNetClient:
    """What connects to brokers inside every client.

    kafka-python 3.0 takes `allow_auto_create_topics` but does not pass it on, so asking for a topic would create it.
    """
    client = KafkaNetClient(**values)
    client.cluster.config["allow_auto_create_topics"] = False
    if opened is not None:
        opened.append(client)
    return client


def _refusal(settings: KafkaSettings, causes: list[BaseException]) -> TransportError | None:
    """Why a connection will not come about however often it is tried; None while it may."""
    for cause in causes:
        # A handshake that fails hides the reason behind an error of the connection.
        is_tls = isinstance(cause.__context__, ssl.SSLError) or isinstance(cause, (OSError, ValueError))
        meaning = Meaning.NO_TLS if is_tls else meaning_of(cause)
        if meaning in (Meaning.NO_LOGIN, Meaning.NO_TLS, Meaning.NO_RIGHT):
            return explain(meaning, settings, cause)
    return None
