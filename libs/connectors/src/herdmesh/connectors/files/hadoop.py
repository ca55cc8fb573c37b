"""A client of Hadoop's file systems: Hadoop's own client, in a small JVM beside this process, with the jars of Spark.

Owns the JVM and the calls that files need, with the used part of the interface of pyarrow's file systems. Staging and
publishing in such a folder: `remote_files`.

Configuration: `HADOOP_CONF_DIR` (core-site.xml, hdfs-site.xml) of the worker's environment, and the jars of the
worker's setting `spark_jars`, for file systems that do not come with Hadoop.

Invariant: the JVM never outlives this process, even after a crash: it exits when its standard input is closed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import IO, Any, Final

from py4j import java_gateway  # pyright: ignore[reportMissingTypeStubs]
from py4j.protocol import Py4JError, Py4JJavaError  # pyright: ignore[reportMissingTypeStubs]
from pyarrow import fs

from herdmesh.scratch import java_options
from herdmesh.sdk import waits
from herdmesh.sdk.spark import JARS_VARIABLE, cause_of, jars_folder

_HADOOP: Final = "org.apache.hadoop"
_CONF_VARIABLE: Final = "HADOOP_CONF_DIR"
#: The jars of Spark that are needed. With all of Spark's jars, and a log, the start takes three times the processor
#: time (1.9 s instead of 0.6 s).
_JARS: Final = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "slf4j-api-*.jar", "commons-logging-*.jar")
_OPTIONS: Final = (
    *("-Xms16m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dslf4j.internal.verbosity=ERROR",  # there is no log; the calls raise their errors
)
"""Options for a JVM that copies bytes and lives for one run."""
_COPIED_BYTES: Final = 1 << 16
_EXIT_TIMEOUT_S: Final = 10.0
_SILENT: Final = frozenset(("java.net.SocketTimeoutException", f"{_HADOOP}.net.ConnectTimeoutException"))
_LOOK_AT: Final = (
    "check that the name node runs there and that the network lets this worker's packets through (core-site.xml: "
    "ipc.client.connect.timeout, ipc.client.connect.max.retries.on.timeouts, ipc.client.rpc-timeout.ms)"
)
_CLIENT: Final = {
    # A JVM whose parent process has ended exits at once and completes no file.
    "fs.automatic.close": "false",
    # HDFS closes a file after a data node has reported its last block to the name node, mostly within milliseconds.
    # Check for that more often than the default (after 400, 800 ms, ...), and for the same total time, 10 s.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
    "dfs.client.block.write.locateFollowingBlock.retries": "9",
}
"""Settings of all its file systems."""
_BUFFER_BYTES: Final = 1 << 16
_py4j: Any = java_gateway
_fs: Any = fs
"""Untyped: py4j has no stubs, and those of pyarrow are older than it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time-outs and retries of calls to a name node. Hadoop's defaults are a quarter of an hour when packets are lost,
    and two minutes on an open connection.
    """

    connect_ms: int = 10_000
    silent_retries: int = 2
    """Retries of a connect attempt that timed out."""
    answer_ms: int = 30_000
    """Time-out of a call."""
    refused_retries: int | None = None
    """Retries of a refused connect attempt, one a second; None = Hadoop's default, 10."""
    rules: bool = False
    """Override Hadoop's configuration files."""

    def settings(self) -> Mapping[str, int]:
        """Return these settings under the names of Hadoop's client."""
        refused = self.refused_retries
        return {
            "ipc.client.connect.timeout": self.connect_ms,
            "ipc.client.connect.max.retries.on.timeouts": self.silent_retries,
            "ipc.client.rpc-timeout.ms": self.answer_ms,
            **({} if refused is None else {"ipc.client.connect.max.retries": refused}),
        }


class HadoopJvm:
    """A JVM, started at the first call."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._gateway: Any = None
        self._process: Any = None
        self._classes: dict[str, Any] = {}

    def named(self, name: str) -> Any:
        """Return a Java class; cached, because each part of a name is a
        call into the JVM. Raises OSError if the JVM does not start.
        """
        with self._lock:
            gateway = self._gateway = self._gateway or self._started()
            found = self._classes.get(name)
            if found is None:
                found = gateway.jvm
                for part in name.split("."):
                    found = getattr(found, part)
                self._classes[name] = found
            return found

    def close(self) -> None:
        """Stop the JVM."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
            self._classes.clear()
            if gateway is not None:
                gateway.shutdown()
                self._process.stdin.close()
                with waits.on("Hadoop's client", "shutting down its JVM"):
                    self._process.wait(_EXIT_TIMEOUT_S)

    def _started(self) -> Any:
        jars = jars_folder()
        more = filter(None, (jar.strip() for jar in os.environ.get(JARS_VARIABLE, "").split(",")))
        ours = [str(jar) for pattern in _JARS for jar in jars.glob(pattern)]
        classpath = filter(None, (os.environ.get(_CONF_VARIABLE), *ours, *more))
        (py4j_jar,) = jars.glob("py4j-*.jar")
        try:
            port, token, self._process = _py4j.launch_gateway(
                jarpath=str(py4j_jar),
                classpath=os.pathsep.join(classpath),
                javaopts=[*_OPTIONS, *java_options(tempfile.gettempdir())],
                java_path=None,  # use JAVA_HOME, like Spark
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
            )
        except ValueError as error:  # the JVM exited before it reported its port
            raise OSError(
                "the JVM for Hadoop's client did not start: check that Java is installed, as for Spark"
            ) from error
        return _py4j.JavaGateway(
            gateway_parameters=_py4j.GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )


@cache
def shared_jvm() -> HadoopJvm:
    """The JVM of this process, for as long as the process lives."""
    return HadoopJvm()


_USUAL: Final = Patience()


class HadoopFileSystem:
    """One of Hadoop's file systems. Thread-safe. Calls raise FileNotFoundError, or OSError with Hadoop's message."""

    type_name = "hadoop"

    def __init__(self, jvm: HadoopJvm, uri: str, user: str | None, patience: Patience = _USUAL) -> None:
        """`user`: the user name, None = the JVM's. The first file system of a JVM sets the connect time-out."""
        self._jvm = jvm
        self._uri = uri
        self._user = user
        self._patience = patience
        self._lock = Lock()
        self._opened: Any = None

    @contextmanager
    def open_output_stream(self, path: str, **_: Any) -> Generator[IO[bytes]]:
        """Yield a stream to a file that exists once the context ends without an error. The content is first written to
        a local temporary file, because each write into the JVM is a call.
        """
        with tempfile.NamedTemporaryFile(prefix="herdmesh-") as spool:
            yield spool.file
            spool.flush()
            with _errors_translated(path):
                self._upload(spool.name, path)

    @contextmanager
    def open_input_stream(self, path: str, **_: Any) -> Generator[IO[bytes]]:
        """Yield a stream of the file's present content, copied to this machine."""
        with tempfile.TemporaryDirectory(prefix="herdmesh-") as folder:
            local = os.path.join(folder, "file")
            with _errors_translated(path):
                self._there().copyToLocalFile(False, self._path(path), self._java_path(f"file:{local}"), True)
            with open(local, "rb") as stream:
                yield stream

    def get_file_info(self, asked: Any) -> Any:
        """Return the info of one path, or of all paths in a selector's
        folder. Raises FileNotFoundError if the folder is missing.
        """
        if isinstance(asked, str):
            with _errors_translated(asked):
                there = self._there()
                path = self._path(asked)
                is_file = there.exists(path) and there.getFileStatus(path).isFile()
            return _fs.FileInfo(asked, _fs.FileType.File if is_file else _fs.FileType.NotFound)
        with _errors_translated(asked.base_dir):
            there = self._there().listStatus(self._path(asked.base_dir))
            found = [(one.isFile(), one.getPath().getName()) for one in there]
        return [
            _fs.FileInfo(f"{asked.base_dir}/{name}", _fs.FileType.File if is_file else _fs.FileType.Directory)
            for is_file, name in found
        ]

    def create_dir(self, path: str, *, recursive: bool) -> None:
        """Create a folder and its parents."""
        assert recursive
        with _errors_translated(path):
            self._there().mkdirs(self._path(path))

    def move(self, source: str, target: str) -> None:
        """Rename a file. Raises OSError also where Hadoop only returns false."""
        with _errors_translated(source):
            if not self._there().rename(self._path(source), self._path(target)):
                raise OSError(f"{source} was not renamed to {target}")

    def delete_file(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError."""
        with _errors_translated(path):
            if not self._there().delete(self._path(path), False):
                raise FileNotFoundError(path)

    def close(self) -> None:
        """Stop the JVM."""
        self._jvm.close()

    def _there(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _open(self) -> Any:
        conf = self._jvm.named(f"{_HADOOP}.conf.Configuration")()
        for name, value in _CLIENT.items():
            conf.set(name, value)
        for name, number in self._patience.settings().items():
            if self._patience.rules or _is_default(conf, name):
                conf.setInt(name, number)
        uri = self._jvm.named("java.net.URI")(f"{self._uri}/")
        systems = self._jvm.named(f"{_HADOOP}.fs.FileSystem")
        return systems.get(uri, conf) if self._user is None else systems.get(uri, conf, self._user)

    def _path(self, path: str) -> Any:
        return self._java_path(f"{self._uri}{path}")

    def _java_path(self, text: str) -> Any:
        return self._jvm.named(f"{_HADOOP}.fs.Path")(text)

    def _upload(self, local: str, path: str) -> None:
        source = self._jvm.named("java.io.FileInputStream")(local)
        try:
            target = self._created(self._path(path))
            try:
                self._jvm.named(f"{_HADOOP}.io.IOUtils").copyBytes(source, target, _COPIED_BYTES, False)
                if target.hasCapability("hsync"):
                    target.hsync()
            finally:
                target.close()
        finally:
            source.close()

    def _created(self, path: Any) -> Any:
        """Return a stream to a new file. HDFS syncs each full block to disk; `hsync` syncs the last block."""
        there = self._there()
        permission = self._jvm.named(f"{_HADOOP}.fs.permission.FsPermission")
        mode = permission.getFileDefault().applyUMask(permission.getUMask(there.getConf()))
        flag = self._jvm.named(f"{_HADOOP}.fs.CreateFlag")
        flags = self._jvm.named("java.util.EnumSet").of(flag.CREATE, flag.SYNC_BLOCK)
        sizes = there.getDefaultReplication(path), there.getDefaultBlockSize(path)
        return there.create(path, mode, flags, _BUFFER_BYTES, *sizes, None)


def _is_default(conf: Any, name: str) -> bool:
    """Check that no configuration file of the user sets the property."""
    return all(source.endswith("-default.xml") for source in conf.getPropertySources(name) or ())


@contextmanager
def _errors_translated(path: str) -> Generator[None]:
    """Translate Java's exceptions to Python's."""
    try:
        yield
    except Py4JJavaError as error:
        raised: Any = error
        name: str = raised.java_exception.getClass().getName()
        said = cause_of(error)
        if name == "java.io.FileNotFoundException":
            raise FileNotFoundError(path) from error
        if name in _SILENT:
            raise OSError(f"{said}: {_LOOK_AT}") from error
        raise OSError(said) from error
    except Py4JError as error:
        raise OSError(f"the JVM of Hadoop's client does not answer: {error}") from error
