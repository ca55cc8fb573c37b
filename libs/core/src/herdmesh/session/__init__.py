"""The herder-worker session: its messages and their wire format, used by both sides.

Owns the values (`model`), the messages from a herder to a worker (`messages`), the herder's commands with a reply
(`worker_commands`), and the one translation of all of them to and from `herder.v1.WorkerSessionService` (`wire`).
Decides nothing: the herder's state decides what to send, the worker's state how to react.

Invariant: `wire` reads its own output back as an equal value, and reads messages of a newer release without raising.
"""
