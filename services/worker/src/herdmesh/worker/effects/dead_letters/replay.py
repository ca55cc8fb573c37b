"""Replay of dead letters: one transaction with the records and the log of the replay.

Owns one step: take over the replay's transactional id, read the log of earlier replays, select the dead letters,
produce, and write the log. `replay_targets` chooses the topics.

Invariant: the log has a dead letter exactly when its record is visible to read_committed consumers. Two replays of one
connector never produce the same dead letter, whichever workers they run on: the later one fences the earlier one, or
reads everything it committed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.connect.clients import client_settings
from herdmesh.connect.error_class import ErrorClass
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.fencing import Fence
from herdmesh.engine.librdkafka import clients
from herdmesh.engine.runtime import RunSpec, TaskFailed, TaskFenced, access_of, classify_kafka, is_fenced
from herdmesh.worker.effects.dead_letters.queue_reader import Ranges, TopicLog, picked, positions, token_of
from herdmesh.worker.effects.dead_letters.replay_log import Memory
from herdmesh.worker.effects.dead_letters.replay_targets import Put, Refused, Targets, targets
from herdmesh.worker.state import dead_letter_headers, dead_letter_replays
from herdmesh.worker.state.dead_letter_headers import DeadLetter
from herdmesh.worker.state.dead_letter_replays import Outcome, Replays

STEP_LETTERS_MAX: Final = 5_000
STEP_BYTES_MAX: Final = 16 * 1024 * 1024
STEP_S: Final = 10.0
_FLUSH_S: Final = 30.0
_PAUSE_S: Final = 0.05
_NAMED_MAX: Final = 5

Remembered = Mapping[bytes, bytes | None]
"""Records for the offsets topic, which a caller with an offsets file stores there."""


@dataclass(slots=True)
class _Chosen:
    """The dead letters of a step, and the offset ranges that it covers, by partition."""

    letters: list[DeadLetter] = field(default_factory=list[DeadLetter])
    looked_at: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    next_page_token: str = ""


@dataclass(slots=True)
class _Plan:
    """The records that a step produces, and the dead letters that it refuses."""

    chosen: _Chosen
    puts: list[Put] = field(default_factory=list[Put])
    refused: list[Refused] = field(default_factory=list[Refused])

    def refuse(self, refused: Sequence[Refused]) -> None:
        """Leave these dead letters out."""
        gone = {one.dead_letter.place for one in refused}
        self.puts = [put for put in self.puts if put.dead_letter.place not in gone]
        self.refused += refused

    @property
    def done(self) -> list[DeadLetter]:
        """The replayed dead letters, including those that give no record because a transformation filters them."""
        left = {one.dead_letter.place for one in self.refused}
        return [letter for letter in self.chosen.letters if letter.place not in left]

    def response(self) -> admin_pb.ReplayDeadLettersResponse:
        """The response to the caller."""
        told = admin_pb.ReplayDeadLettersResponse(
            replayed_count=len(self.done), next_page_token=self.chosen.next_page_token
        )
        for put in self.puts:
            place = admin_pb.DeadLetterPlace(partition=put.dead_letter.partition, offset=put.dead_letter.offset)
            told.replayed.add(place=place, topic=put.topic, partition=put.partition)
        for one in self.refused:
            place = admin_pb.DeadLetterPlace(partition=one.dead_letter.partition, offset=one.dead_letter.offset)
            told.refused.add(place=place, reason=one.reason)
        return told


class Replay:
    """One step of one request. Used once, in one thread."""

    def __init__(
        self, spec: RunSpec, log: TopicLog, memory: Memory, request: admin_pb.ReplayDeadLettersRequest
    ) -> None:
        """`spec` and `memory` have the replay's transactional id (`replay_spec`)."""
        self._spec = spec
        self._log = log
        self._memory = memory
        self._request = request

    def run(self) -> tuple[admin_pb.ReplayDeadLettersResponse, Remembered]:
        """The response, and the records that a worker with an offsets file must store. Raises as
        `DeadLetters.replayed`.
        """
        with closing(targets(self._spec, self._log)) as to:
            if self._request.dry_run:
                return self._plan(self._memory.read(), to).response(), {}
            fence = Fence(clients.producer(self._spec, self._producer_settings()), self._spec.transactional_id)
            with closing(fence):
                fence.take_over()
                known = self._memory.read_fenced(fence)
                before = known.outcome(self._request.request_id)
                if before is None:
                    return self._carry_out(fence, self._plan(known, to), known)
                token = before.next_page_token
                return admin_pb.ReplayDeadLettersResponse(
                    replayed_count=before.replayed_count, next_page_token=token
                ), {}

    def _carry_out(
        self, fence: Fence, plan: _Plan, known: Replays
    ) -> tuple[admin_pb.ReplayDeadLettersResponse, Remembered]:
        fence.begin()
        while failed := _produced(fence.producer, plan):
            fence.abort()  # the rest of the transaction could not be committed
            plan.refuse(failed)
            self._refuse_named(plan.refused)
            fence.begin()
        self._refuse_named(plan.refused)
        remembered = self._remembered(known, plan)
        if self._memory.topic is not None:
            for key, value in remembered.items():
                fence.producer.produce(self._memory.topic, value, key)
        fence.commit()
        return plan.response(), remembered if self._memory.topic is None else {}

    def _plan(self, known: Replays, to: Targets) -> _Plan:
        """The records to produce. Raises ConfigError when a named dead letter cannot be replayed.

        A sink that dies between producing a dead letter and committing its offsets writes the dead letter again: of all
        dead letters of a step, one per original record is replayed.
        """
        ranges = self._log.ranges()
        plan = _Plan(self._named(ranges, known) if self._request.letters else self._step(ranges, known))
        twins: set[object] = set()
        for letter in plan.chosen.letters:
            twin = None if self._request.letters else letter.original
            found = [] if twin in twins else to.put(letter)
            if isinstance(found, Refused):
                plan.refused.append(found)
            else:
                plan.puts += found
                twins |= {twin} - {None}
        self._refuse_named(plan.refused)
        return plan

    def _refuse_named(self, refused: Sequence[Refused]) -> None:
        if refused and self._request.letters:
            told = "; ".join(f"{one.dead_letter.place}: {one.reason}" for one in refused[:_NAMED_MAX])
            more = f"; and {len(refused) - _NAMED_MAX} more" if len(refused) > _NAMED_MAX else ""
            raise ConfigError(f"nothing was replayed: {told}{more}")

    # --- selection of dead letters

    def _named(self, ranges: Ranges, known: Replays) -> _Chosen:
        named = {(one.partition, one.offset): one for one in self._request.letters}
        if len(named) < len(self._request.letters):
            raise ConfigError("nothing was replayed: a dead letter is named twice")
        found = {(letter.partition, letter.offset): letter for letter in picked(self._log, ranges, named)}
        refused = [
            Refused(DeadLetter(*place, None, None, None), "there is no such dead letter (any more)")
            for place in named
            if place not in found
        ]
        for place, letter in found.items():
            given = named[place]
            if given.mended and any(one.name == dead_letter_headers.CUT for one in given.headers):
                refused.append(
                    Refused(
                        letter,
                        "key and value of this dead letter were cut: write the whole ones into the file and remove the "
                        f"header {dead_letter_headers.CUT}; or replay it unchanged, by its PARTITION:OFFSET alone",
                    )
                )
            elif not letter.belongs_to(self._spec.connector):
                refused.append(
                    Refused(letter, f"it is a dead letter of connector {letter.error(dead_letter_headers.CONNECTOR)}")
                )
            elif known.has(*place) and not self._request.again:
                refused.append(Refused(letter, "it was replayed before; --again replays it once more"))
        self._refuse_named(refused)
        return _Chosen([mended(letter, named[place]) for place, letter in found.items()])

    def _step(self, ranges: Ranges, known: Replays) -> _Chosen:
        begun, untils = _places(self._request.page_token) if self._request.page_token else ({}, _ends(ranges))
        chosen, size_bytes, deadline_s = _Chosen(), 0, time.monotonic() + STEP_S
        nexts = {number: begun.get(number, 0) for number in untils}
        for number, until in untils.items():
            runs, beginning = known.of(number), ranges[number][0] if number in ranges else until
            runs.forget_below(beginning)
            first = max(beginning, nexts[number], 0 if self._request.again else runs.next)
            nexts[number] = until
            for letter in self._log.dead_letters(number, first, until):
                full = len(chosen.letters) >= STEP_LETTERS_MAX or size_bytes >= STEP_BYTES_MAX
                if full or time.monotonic() > deadline_s:
                    nexts[number] = letter.offset
                    break
                done = runs.has(letter.offset) and not self._request.again
                if letter.belongs_to(self._spec.connector) and not done:
                    chosen.letters.append(letter)
                    size_bytes += letter.size_bytes
            chosen.looked_at[number] = first, nexts[number]
            if nexts[number] < until:
                break
        if any(nexts[number] < until for number, until in untils.items()):
            chosen.next_page_token = f"{token_of(nexts)};{token_of(untils)}"
        return chosen

    # --- log of the replay

    def _remembered(self, known: Replays, plan: _Plan) -> dict[bytes, bytes | None]:
        """The log records of this step. Raises DataError when they are too large."""
        for number, (first, end) in plan.chosen.looked_at.items():
            for offset in sorted(one.dead_letter.offset for one in plan.refused if one.dead_letter.partition == number):
                known.of(number).add(first, offset - 1)
                first = offset + 1
            known.of(number).add(first, end - 1)
        for letter in plan.done:
            known.of(letter.partition).add(letter.offset, letter.offset)
        token = plan.chosen.next_page_token
        known.note(Outcome(self._request.request_id, len(plan.done), token))
        touched = {*plan.chosen.looked_at, *(letter.partition for letter in plan.done)}
        return self._memory.records(known, touched)

    def _producer_settings(self) -> dict[str, str | int | float | bool]:
        spec = self._spec
        given = client_settings("producer", spec.worker_config, spec.connector_config).config
        access = access_of(spec, "producer", "consumer")
        return {**given, **access, "client.id": f"herdmesh-dlq-{spec.connector}"}


def replay_spec(spec: RunSpec) -> RunSpec:
    """The spec with the transactional id of the connector's replays."""
    return replace(spec, transactional_id=f"{spec.group_id}-{dead_letter_replays.owner(spec.connector)}")


def mended(letter: DeadLetter, given: admin_pb.DeadLetter) -> DeadLetter:
    """The dead letter with the content that the request gives for it, if the request gives more than its place."""
    if not given.mended:
        return letter
    own = tuple((one.name, one.value if one.HasField("value") else None) for one in given.headers)
    places = (dead_letter_headers.TOPIC, dead_letter_headers.PARTITION)
    errors = tuple((name, text.encode()) for name, text in given.error_headers.items() if name in places)
    key, value = (given.key if given.HasField("key") else None), (given.value if given.HasField("value") else None)
    return replace(letter, key=key, value=value, headers=own, errors=errors)


def _produced(producer: Producer, plan: _Plan) -> list[Refused]:
    """Produce the records and wait until Kafka has acknowledged them.

    Returns the dead letters that Kafka refuses, after which the transaction must be aborted. Those that only the client
    refuses are removed from the plan here; they do not affect the transaction.

    Raises:
        KafkaException: a failure that affects all records.
        TaskFenced: a later replay has taken over.
        TaskFailed: RETRIABLE, when Kafka does not answer in time.
    """
    failed: list[tuple[Put, KafkaError]] = []
    refused: list[Refused] = []
    try:
        for put in plan.puts:
            error = _queued(producer, put, partial(_note, failed, put))
            if error is not None:
                refused.append(Refused(put.dead_letter, _reason(put, error)))
        deadline_s = time.monotonic() + _FLUSH_S
        while producer.flush(1.0) and time.monotonic() < deadline_s:
            pass
        left = len(producer)
    except SystemError as pending:  # a fatal error was pending while the client called back (`clients`)
        raise pending.__cause__ or pending from None
    if left:
        raise TaskFailed(f"{left} records wait for Kafka for {_FLUSH_S:.0f} s", ErrorClass.RETRIABLE)
    for _, error in failed:
        if is_fenced(error):
            raise TaskFenced("another replay of this connector's dead letters has begun")
        if classify_kafka(error) is not ErrorClass.FATAL:
            raise KafkaException(error)
    if not failed:
        plan.refuse(refused)
        return []
    return [*refused, *(Refused(put.dead_letter, _reason(put, error)) for put, error in failed)]


def _queued(producer: Producer, put: Put, on_delivery: Any) -> KafkaError | None:
    """Hand a record to the client; return the error with which the client itself refuses it."""
    more: dict[str, Any] = {} if put.partition is None else {"partition": put.partition}
    if put.dead_letter.time_ms is not None:
        more["timestamp"] = put.dead_letter.time_ms
    while True:
        try:
            producer.produce(put.topic, put.value, put.key, headers=list(put.headers), on_delivery=on_delivery, **more)
        except BufferError:
            producer.poll(_PAUSE_S)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise
            return cause
        else:
            return None


def _note(failed: list[tuple[Put, KafkaError]], put: Put, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        failed.append((put, error))


def _reason(put: Put, error: KafkaError) -> str:
    return f"Kafka refuses it for topic {put.topic}: {error.str()}"


def _ends(ranges: Ranges) -> dict[int, int]:
    return {number: end for number, (_, end) in ranges.items()}


def _places(token: str) -> tuple[dict[int, int], dict[int, int]]:
    """The start offsets of a step, and the end offsets of all steps, by partition. Raises ConfigError."""
    nexts, _, untils = token.partition(";")
    return positions(nexts), positions(untils)
