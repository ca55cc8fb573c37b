"""Errors of starting and stopping a development stack.

    DevstackError
    |-- JavaMissing            no java found
    |-- JavaTooOld             a java was found, older than 17
    |-- JarsUnavailable        the pinned jars could not be fetched, or do not match their sums
    |-- DataFolderUnusable     the data folder cannot be created, read or written
    |-- DataFolderGone         the data folder was moved or removed while its stack ran
    |-- StackAlreadyRunning    another supervisor serves this data folder (its pid is known)
    |-- KafkaUnusable          an existing Kafka cluster does not answer, or its client settings cannot be used
    |-- BrokerAlreadyRunning   another process serves this data folder (its pid is known)
    `-- BrokerFailed           the broker ended or did not serve in time (the tail of its log is in the message)

Every message has the cause and the next step; the CLI prints it as it is.
"""

from __future__ import annotations

from pathlib import Path


class DevstackError(Exception):
    """Base of all errors of this package."""


class JavaMissing(DevstackError):
    """No usable `java` was found in JAVA_HOME or PATH."""


class JavaTooOld(DevstackError):
    """A `java` was found, but Kafka 4 and Spark 4 need 17 or newer."""


class JarsUnavailable(DevstackError):
    """The jars of a group could not be fetched, or the fetched jars do not match the committed sums."""


class DataFolderUnusable(DevstackError):
    """The data folder, or a file in it, cannot be created, read or written."""

    def __init__(self, data_dir: Path, error: OSError) -> None:
        where = f" ({error.filename})" if error.filename and Path(str(error.filename)) != data_dir else ""
        reason = error.strerror or type(error).__name__
        super().__init__(
            f"{data_dir} cannot be used as the data folder: {reason}{where}. "
            "--data DIR names a folder that you may write to, on a disk with space."
        )


class DataFolderGone(DevstackError):
    """The data folder was moved or removed while its stack ran; the stack was stopped."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"{data_dir} was moved or removed while its stack ran, so all services were stopped. `herd up --data DIR` "
            "with the folder's new place starts them again with its data."
        )


class StackAlreadyRunning(DevstackError):
    """Another supervisor serves this data folder; `pid` names it (None in the moment in which it takes the folder)."""

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        self.pid = pid
        who = f"process {pid}" if pid is not None else "another `herd up`"
        super().__init__(f"{data_dir} is already in use by {who}: `herd down` stops it, `herd watch` shows it")


class KafkaUnusable(DevstackError):
    """An existing Kafka cluster does not answer, or no client can be made with the settings given for it."""


class BrokerAlreadyRunning(DevstackError):
    """The data folder is served by a live broker. `pid` names it (None while it is still being started)."""

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        self.data_dir = data_dir
        self.pid = pid
        who = f"process {pid}" if pid is not None else "a broker that is just starting"
        super().__init__(f"{data_dir} is already in use by {who}: stop it first, or use another data folder")


class BrokerFailed(DevstackError):
    """The broker ended, or did not serve within the time given."""


class AccessUnusable(DevstackError):
    """No Kafka client can be made with these settings of TLS and login."""
