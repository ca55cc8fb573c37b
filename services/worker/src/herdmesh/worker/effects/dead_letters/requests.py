"""Requests about a connector's dead letters: list and replay.

Owns the life of a request: each reads one queue in a thread, with a limit on concurrent requests; and the conversion
between messages and values. `queue_reader` reads, `replay` produces.

In standalone mode the replay log is in the offsets file, written after the transaction of the records: a crash between
the two leaves replayed dead letters that the log does not have.

Invariant: this process runs one replay at a time; by its transactional id, the cluster runs one per connector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin_pb
from herdmesh.connect.config import redacted
from herdmesh.connect.errors import ConfigError
from herdmesh.engine.runtime import Properties, RunSpec
from herdmesh.rpc.properties import texts
from herdmesh.session import worker_commands
from herdmesh.session.model import UnitId
from herdmesh.worker.effects.dead_letters.queue_reader import TopicLog, page, picked
from herdmesh.worker.effects.dead_letters.replay import Replay, replay_spec
from herdmesh.worker.effects.dead_letters.replay_log import Memory
from herdmesh.worker.effects.offsets import OffsetFile
from herdmesh.worker.effects.runs import RunSpecs
from herdmesh.worker.state import dead_letter_headers
from herdmesh.worker.state.dead_letter_headers import DeadLetter, Wanted
from herdmesh.worker.state.dead_letter_replays import Replays
from herdmesh.worker.state.model import TaskSpec
from herdmesh.worker.threads import in_thread

LETTER_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger dead letter is listed without key, value and headers; it can be replayed by its place."""
_AT_A_TIME: Final = 2
_PAGE_SIZE: Final = 100


class DeadLetters:
    """Handler of dead letter requests for this worker's cluster."""

    def __init__(self, specs: RunSpecs, offset_file: OffsetFile | None) -> None:
        """`offset_file` has the replay log in standalone mode; None = the offsets topic has it."""
        self._specs = specs
        self._offset_file = offset_file
        self._limit = asyncio.Semaphore(_AT_A_TIME)
        self._one_replay = asyncio.Lock()

    async def listed(self, question: worker_commands.ListDeadLettersOnWorker) -> admin_pb.ListDeadLettersResponse:
        """A page of dead letters.

        Raises:
            ConfigError: there is no queue, or the request is invalid.
            KafkaException, TaskFailed: Kafka does not return the records.
        """
        request = question.wire
        assert isinstance(request, admin_pb.ListDeadLettersRequest)
        async with self._limit:
            return await in_thread("dead letters", lambda: self._listed(texts(question.config), request))

    async def replayed(self, question: worker_commands.ReplayOnWorker) -> admin_pb.ReplayDeadLettersResponse:
        """Replay dead letters: the named ones, all or none, or one step of all.

        Raises:
            ConfigError, DataError: they cannot be replayed, and none was.
            TaskFailed: Kafka did not accept them; TaskFenced when another replay of the same connector took over.
            KafkaException: Kafka does not answer, or refuses.
            OSError: they were replayed, and the offsets file could not be written.
        """
        request = question.wire
        assert isinstance(request, admin_pb.ReplayDeadLettersRequest)
        async with self._one_replay:
            response, remembered = await in_thread("replay", lambda: self._replayed(texts(question.config), request))
            if self._offset_file is not None and remembered:
                await self._offset_file.store(remembered)
        return response

    # --- in threads

    def _listed(self, config: Properties, request: admin_pb.ListDeadLettersRequest) -> admin_pb.ListDeadLettersResponse:
        spec, topic = self._queue(request.name, config)
        with closing(TopicLog(spec, topic)) as log:
            replays = self._memory(spec, log).read()
            ranges = log.ranges()
            if request.places:
                wanted = Wanted(request.name, replayed=True)
                named = ((one.partition, one.offset) for one in request.places)
                found = [letter for letter in picked(log, ranges, named) if wanted.takes(letter)]
                found, token = [_marked(letter, replays) for letter in found], ""
            else:
                size = request.page_size or _PAGE_SIZE
                wanted = _wanted(request)
                if not wanted.replayed:  # everything below was replayed
                    ranges = {
                        number: (max(first, replays.of(number).next), end) for number, (first, end) in ranges.items()
                    }

                def keep(letter: DeadLetter) -> DeadLetter | None:
                    marked = _marked(letter, replays)
                    return marked if wanted.takes(marked) else None

                found, token = page(log, ranges, request.page_token, size, keep)
        brief = request.view == admin_pb.DEAD_LETTER_VIEW_BRIEF
        told = [dead_letter_to(letter, brief=brief) for letter in found]
        return admin_pb.ListDeadLettersResponse(letters=told, next_page_token=token, topic=topic)

    def _replayed(
        self, config: Properties, request: admin_pb.ReplayDeadLettersRequest
    ) -> tuple[admin_pb.ReplayDeadLettersResponse, Mapping[bytes, bytes | None]]:
        spec, topic = self._queue(request.name, config)
        with closing(TopicLog(spec, topic)) as log:
            spec = replay_spec(spec)
            return Replay(spec, log, self._memory(spec, log), request).run()

    def _queue(self, connector: str, config: Properties) -> tuple[RunSpec, str]:
        """A spec of the connector's task 0, and the topic of its queue."""
        spec = self._specs.without_class(UnitId(connector, 0), TaskSpec(config, config, 1))
        topic = dead_letter_headers.queue_of(spec.connector_config)
        if not topic:
            raise ConfigError(
                f"it has no dead letter queue: set {dead_letter_headers.QUEUE_KEY}, and errors.tolerance=all to go on "
                "after a bad record",
                field=dead_letter_headers.QUEUE_KEY,
            )
        return spec, topic

    def _memory(self, spec: RunSpec, log: TopicLog) -> Memory:
        return Memory(spec, log, self._offset_file.of if self._offset_file is not None else None)


def _marked(letter: DeadLetter, replays: Replays) -> DeadLetter:
    return replace(letter, replayed=True) if replays.has(letter.partition, letter.offset) else letter


def _wanted(request: admin_pb.ListDeadLettersRequest) -> Wanted:
    since_ms = request.since.ToMilliseconds() if request.HasField("since") else None
    return Wanted(request.name, request.include_replayed, request.stage, request.error, since_ms)


def dead_letter_to(letter: DeadLetter, *, brief: bool) -> admin_pb.DeadLetter:
    """The message. Texts that this worker or one of its tasks created have resolved config values redacted."""
    message = admin_pb.DeadLetter(
        partition=letter.partition, offset=letter.offset, replayed=letter.replayed, cut=letter.is_cut
    )
    if letter.time_ms is not None:
        message.time.FromMilliseconds(letter.time_ms)
    for name, _ in letter.errors:
        text = letter.error(name)
        if text is not None and not (brief and name == dead_letter_headers.STACK_TRACE):
            message.error_headers[name] = redacted(text)
    if brief and (text := letter.brief_message) is not None:
        message.error_headers[dead_letter_headers.MESSAGE] = redacted(text)
    if brief or letter.size_bytes > LETTER_BYTES_MAX:
        return message
    if letter.key is not None:
        message.key = letter.key
    if letter.value is not None:
        message.value = letter.value
    for name, value in letter.headers:
        message.headers.add(name=name, value=value)
    return message
