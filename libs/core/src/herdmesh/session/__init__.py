"""The herder-worker session: its words and their wire, used by both sides.

Owns the values (`model`), what a herder tells a worker (`messages`) and asks it (`questions`), and the one translation
of all of them to and from `herder.v1.WorkerSessionService` (`wire`). Decides nothing: the herder's state decides what
to tell, the worker's state what to do.

Invariant: `wire` reads back what it wrote as an equal value, and reads what a newer release writes without raising.
"""
