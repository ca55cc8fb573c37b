"""The house rules a linter cannot express, as functions over one file each. Owns the rules, not which files exist.

Every rule takes a `Source` and returns its findings, one sentence each, with the remedy. Rules are
tested on bad samples in `test_rules.py` and applied to the whole tree in `test_tree.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

#: Modules that pure state may not use: it gets events and `now`, and returns instructions (docs/design/README.md,
#: section 1).
IMPURE = {
    *("asyncio", "concurrent", "confluent_kafka", "grpc", "multiprocessing", "os", "pyspark", "random", "secrets"),
    *("socket", "subprocess", "threading", "time"),
}
KAFKA = ("confluent_kafka",)
#: Where a Kafka client may be imported outside a service's `effects`.
KAFKA_HOMES = (
    "libs/core/src/herdmesh/topicstore/",
    "libs/core/src/herdmesh/engine/",
    "libs/core/src/herdmesh/kafka/",
    "libs/connectors/src/herdmesh/connectors/mirror/cluster.py",
    "libs/sdk/src/herdmesh/sdk/testing/",
    "cli/src/herdmesh/devstack/readiness.py",
    "cli/src/herdmesh/cli/demo",
    "cli/src/herdmesh/cli/kafka/",
)
#: Wrappers of librdkafka's offset calls that may crash the process, and that prevent it.
ASK_SAFELY = (
    "libs/core/src/herdmesh/kafka/listed_offsets.py",
    "libs/core/src/herdmesh/kafka/groups.py",
    "libs/core/src/herdmesh/engine/librdkafka/group_offsets.py",
    "libs/core/src/herdmesh/kafka/committed_offsets.py",
)
#: The module that decides which errors of Kafka are transient.
TRANSIENT_HOME = "libs/core/src/herdmesh/kafka/transient.py"
#: Calls about one group, which crash the process when they time out too soon.
ABOUT_GROUPS = ("describe_consumer_groups", "delete_consumer_groups", "alter_consumer_group_offsets")
#: Modules that may create a plain producer: one with a report for each record, one whose records do not matter, or one
#: that is not idempotent.
PRODUCERS = (
    "libs/core/src/herdmesh/topicstore/kafka/writer.py",
    "libs/core/src/herdmesh/engine/librdkafka/clients.py",
    "libs/sdk/src/herdmesh/sdk/testing/running.py",
    "services/worker/src/herdmesh/worker/effects/runs/fencing.py",
    "cli/src/herdmesh/cli/demo/flights.py",
)
#: Modules whose clients use brokers without a login.
WITHOUT_LOGIN = ("libs/sdk/src/herdmesh/sdk/testing/", "cli/src/herdmesh/cli/demo/")
#: The worker's Spark, a task's own Spark, and the demo's proof that plain Spark reads the output.
SPARK_HOMES = (
    "services/worker/src/herdmesh/worker/spark/",
    "libs/sdk/src/herdmesh/sdk/spark/",
    "cli/src/herdmesh/cli/demo/read_back.py",
)
#: Code that runs tasks and connectors, and the part of it that waits for no target: the worker's own Spark and its
#: processes.
WAITERS = (
    "libs/core/src/herdmesh/engine/",
    "libs/core/src/herdmesh/connect/",
    "libs/sdk/src/herdmesh/sdk/",
    "libs/connectors/src/herdmesh/connectors/",
)
NO_WAITERS = ("libs/sdk/src/herdmesh/sdk/testing/",)
WAITING_CALLS = {"sleep", "wait", "wait_for", "awaitTermination"}
#: The longest pause between two checks of another process.
POLL_S_MAX = 0.25


@dataclass(frozen=True)
class Source:
    """One file of the tree: its path below the root, with forward slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree (for Python files only)."""
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, walked once for all rules."""
        return list(ast.walk(self.tree))

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_shipped(self) -> bool:
        """Part of a distribution, not a test or a tool."""
        return "/src/herdmesh/" in self.path

    @property
    def is_test(self) -> bool:
        return "tests" in PurePosixPath(self.path).parts

    def is_module(self, *names: str) -> bool:
        """True for `<name>.py` and for files of a package `<name>/`, for any of the names."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        return any(name in parts for name in names)

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and absolute dotted name of everything imported, at any depth; `from a import b` gives `a.b`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


Rule = Callable[[Source], Iterator[str]]


def file_length(source: Source) -> Iterator[str]:
    """Limit the length of files: a limit for functions alone lets files grow without end."""
    lines = source.text.count("\n")
    if source.path.endswith((".py", ".proto", ".sh")) and lines > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}: split it by what it owns"


def function_length(source: Source) -> Iterator[str]:
    """Limit the length of functions, so that people can read them at a glance."""
    if not (source.is_python and source.is_shipped):
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"line {node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def opens_with_docstring(source: Source) -> Iterator[str]:
    """Require a docstring that states what the file owns, what it does not, and its invariant."""
    if source.is_python and source.is_shipped and source.text.strip() and not ast.get_docstring(source.tree):
        yield "no docstring at the top: say what the file owns"


def pure_state(source: Source) -> Iterator[str]:
    """`state` is a function of events and `now`: no I/O, no clock, no randomness."""
    if not (source.is_python and source.is_shipped and source.is_module("state")):
        return
    for line, name in source.imports():
        if name.split(".")[0] in IMPURE:
            yield f"line {line}: state imports {name}; make it an event or an instruction"
    for line, name in _calls(source):
        if name.endswith((".now", ".utcnow", ".today")) or name in {"uuid.uuid4", "uuid4", "uuid1", "open", "print"}:
            yield f"line {line}: state calls {name}(); take it from the event"


def kafka_only_in_effects(source: Source) -> Iterator[str]:
    """In a service only `effects` talks to Kafka; in the libraries the topic store, the record loop and `kafka` do."""
    if not (source.is_python and source.is_shipped) or source.path.startswith(KAFKA_HOMES):
        return
    if source.path.startswith("services/") and source.is_module("effects"):
        return
    for line, name in source.imports():
        if name.split(".")[0] in KAFKA:
            yield f"line {line}: imports {name}; Kafka clients live in effects, topicstore, engine and kafka"


def offsets_asked_safely(source: Source) -> Iterator[str]:
    """Some calls of the client may crash the process, or read past the end of a text (docs/internals/bugs.md)."""
    if not source.is_python or source.path in ASK_SAFELY:
        return
    for line, name in _calls(source):
        if name.endswith(".list_offsets"):
            yield f"line {line}: asks a client for offsets; herdmesh.kafka.listed_offsets does that safely"
        if name.endswith(".list_consumer_group_offsets"):
            safe = "herdmesh.engine.librdkafka.group_offsets"
            yield f"line {line}: asks a client for a group's offsets; {safe} does that safely"
        if source.is_shipped and name.endswith("onsumer.committed"):
            yield f"line {line}: reads committed offsets; herdmesh.kafka.committed_offsets reads metadata by its length"
        if source.is_shipped and name.rpartition(".")[2] in ABOUT_GROUPS:
            yield f"line {line}: asks a client about a group; herdmesh.kafka.groups does that safely"


def transient_asked_once(source: Source) -> Iterator[str]:
    """`KafkaError.retriable()` is False for every error of a consumer, however transient."""
    if not source.is_python or source.is_test or source.path == TRANSIENT_HOME:
        return
    for line, name in _calls(source):
        if name.endswith(".retriable"):
            yield f"line {line}: asks an error if it is retriable; herdmesh.kafka.transient says that of all errors"


def producers_checked(source: Source) -> Iterator[str]:
    """librdkafka may count a lost record as acknowledged (docs/internals/bugs.md)."""
    if not (source.is_python and source.is_shipped) or source.path in PRODUCERS:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and any(_is_producer(one) for one in (node.func, *node.args)):
            yield f"line {node.lineno}: makes a producer; herdmesh.kafka.checked_producer's tells when it only guesses"


def clients_ready(source: Source) -> Iterator[str]:
    """A login that librdkafka lacks (AWS_MSK_IAM) needs its settings prepared."""
    if not (source.is_python and source.is_shipped) or source.path.startswith(WITHOUT_LOGIN):
        return
    for node in source.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        made = node.func.id in ("Consumer", "Producer", "AdminClient")
        if made and not ast.unparse(node.args[0]).startswith(("ready(", "{'log_level'")):
            yield f"line {node.lineno}: makes a client of settings that herdmesh.kafka.logins.ready has not seen"


def _is_producer(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "Producer"


def servicers_only_in_service(source: Source) -> Iterator[str]:
    """Wire in, wire out: only `service` implements servicers; clients of others' stubs are in `effects`."""
    if not (source.is_python and source.path.startswith("services/") and source.is_shipped):
        return
    for node in source.nodes:
        if isinstance(node, ast.ClassDef) and not source.is_module("service"):
            bases = [ast.unparse(base) for base in node.bases]
            if any(base.endswith("Servicer") for base in bases):
                yield f"line {node.lineno}: {node.name} implements a servicer; only service.py does"
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name.endswith("Stub") and not (source.is_module("effects", "run")):
                yield f"line {node.lineno}: uses {name}; only effects talks to other services (a run's process: run)"


def spark_only_in_spark(source: Source) -> Iterator[str]:
    """Everything else runs without Spark, in a test or on a laptop alike."""
    if not (source.is_python and source.is_shipped) or source.path.startswith(SPARK_HOMES):
        return
    for line, name in source.imports():
        if name.split(".")[0] == "pyspark":
            yield f"line {line}: imports {name}; only herdmesh.worker.spark and herdmesh.sdk.spark do"


def waits_have_reasons(source: Source) -> Iterator[str]:
    """A task that waits for over 5 s names the reason (`herdmesh.connect.spi.waits`), or nobody knows why it does
    nothing.

    Finds sleeps and waits for threads, events and processes in code that runs tasks and connectors. Each is within
    `with waits.on(...)`, or has a comment `# waits: ...` on its line or the one above: why it is short, or who names
    it.
    """
    if not source.is_python or not source.path.startswith(WAITERS) or source.path.startswith(NO_WAITERS):
        return
    named = [
        (node.lineno, node.end_lineno or node.lineno)
        for node in source.nodes
        if isinstance(node, ast.With) and any(_names_a_wait(item.context_expr) for item in node.items)
    ]
    lines = source.text.splitlines()
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        line, name = node.lineno, _dotted(node.func)
        called = name.rpartition(".")[2]
        waits = called in WAITING_CALLS or (name.endswith("producer.flush") and bool(node.args))
        if not waits or name.startswith(("asyncio.", "ended.")):
            continue
        explained = any("# waits: " in text for text in lines[max(0, line - 2) : line])
        if not (explained or any(first <= line <= last for first, last in named)):
            yield (
                f"line {line}: waits by {name}() and says not for what; put it within `with waits.on(...)`, or write "
                "`# waits: ` and why it is under 5 s or who says it"
            )


def _names_a_wait(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).rpartition("waits.")[1:] in {
        ("waits.", "on"),
        ("waits.", "unless_named"),
    }


def matches_are_complete(source: Source) -> Iterator[str]:
    """A new event, instruction or state must not fall into another one's `case _`.

    A match with a pattern of our own classes or enums ends in `case _:` with `assert_never(...)`, which pyright proves
    to be out of reach, or with `raise`. Where the subject's type is open (any exception), its `case _:` has a comment
    `# open: ` that explains it.
    """
    if not (source.is_python and source.is_shipped):
        return
    own = _own_names(source)
    lines = source.text.splitlines()
    for node in source.nodes:
        if not (isinstance(node, ast.Match) and any(_names_own(case.pattern, own) for case in node.cases)):
            continue
        last = node.cases[-1]
        catches_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
        if catches_all and (_never_returns(last.body) or "# open: " in lines[last.pattern.lineno - 1]):
            continue
        yield (
            f"line {node.lineno}: a match over our own types does not end in `case _: assert_never(...)`; write that, "
            "or `# open: ` and why the type is open at its `case _:`"
        )


def _own_names(source: Source) -> set[str]:
    """Classes of this file, and its imports from herdmesh; generated contracts are not ours to close."""
    own = {node.name for node in source.nodes if isinstance(node, ast.ClassDef)}
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and re.match(r"herdmesh(?!\.api)\b", node.module or ""):
            own.update(alias.asname or alias.name for alias in node.names)
    return own


def _names_own(pattern: ast.pattern, own: set[str]) -> bool:
    for node in ast.walk(pattern):
        named = (
            node.cls if isinstance(node, ast.MatchClass) else node.value if isinstance(node, ast.MatchValue) else None
        )
        if isinstance(named, ast.Name | ast.Attribute) and _dotted(named).split(".")[0] in own:
            return True
    return False


def _never_returns(body: list[ast.stmt]) -> bool:
    last = body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return _dotted(last.value.func) == "assert_never"
    return isinstance(last, ast.Raise)


def no_sleeping_tests(source: Source) -> Iterator[str]:
    """A test waits for a condition, not for time to pass: it sleeps only between two checks of a condition."""
    if not (source.is_python and source.is_test):
        return
    loops = [node for node in source.nodes if isinstance(node, ast.While)]
    polls = {id(node) for loop in loops for statement in loop.body for node in ast.walk(statement)}
    for node in source.nodes:
        if isinstance(node, ast.Call) and _dotted(node.func) in {"time.sleep", "asyncio.sleep", "sleep"}:
            pause = node.args[0] if node.args else None
            seconds = pause.value if isinstance(pause, ast.Constant) else None
            short = isinstance(seconds, int | float) and seconds <= POLL_S_MAX
            if not (short and (id(node) in polls or seconds == 0)):
                yield f"line {node.lineno}: sleeps; wait for an event, or look at a condition in a while loop"


def no_patched_callbacks(source: Source) -> Iterator[str]:
    """A callback that is assigned into another object is missing until then, and its owner cannot say who calls it."""
    if not source.is_python or "/src/" not in source.path:
        return
    for owner in source.nodes:
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = {
            one.name
            for one in owner.body
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            and not any(ast.unparse(by).endswith("property") for by in one.decorator_list)
        }
        for node in ast.walk(owner):
            if isinstance(node, ast.Assign) and _is_callback(node.value, methods):
                for target in node.targets:
                    if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in {"self", "cls"}:
                        yield f"line {node.lineno}: assigns a callback into another object; pass it to its constructor"


def _is_callback(value: ast.expr, methods: set[str]) -> bool:
    if isinstance(value, ast.Call):
        return _dotted(value.func).rsplit(".", 1)[-1] == "partial"
    if isinstance(value, ast.Attribute):
        return ast.unparse(value.value) == "self" and value.attr in methods
    return isinstance(value, ast.Lambda)


def no_loose_ends(source: Source) -> Iterator[str]:
    """Unfinished work is an issue or an ADR, not a mark in the code."""
    for number, line in enumerate(source.text.splitlines(), 1):
        found = re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b|raise NotImplemented" r"Error", line)
        if found:
            yield f"line {number}: {found[0]}"


def no_bare_except(source: Source) -> Iterator[str]:
    """A bare except swallows cancellation and Ctrl-C."""
    if source.is_python:
        for node in source.nodes:
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                yield f"line {node.lineno}: bare except; name what is expected"


def no_machine_paths(source: Source) -> Iterator[str]:
    """Nothing may depend on one person's or one machine's folders."""
    for number, line in enumerate(source.text.splitlines(), 1):
        found = re.search(r"(?<![\w.}/])/(?:home|root|Users|work)/\S*", line)
        if found:
            yield f"line {number}: path of one machine: {found[0]}"


def no_registry_addresses(source: Source) -> Iterator[str]:
    """The source of packages is configured by each site's pip, npm and Ivy settings."""
    name = PurePosixPath(source.path).name
    if name in {"package-lock.json", "uv.lock", "poetry.lock", "Pipfile.lock", "yarn.lock"}:
        yield "lock files record registry addresses; pin versions in plain lists"
    lists_packages = name.startswith(
        ("requirements", "pyproject", "ivy", "package", "check-tools", "Makefile", "setup")
    )
    if lists_packages or source.path.startswith((".ci/", "deploy/")):
        for number, line in enumerate(source.text.splitlines(), 1):
            if re.search(r"https?://|--(extra-)?index-url|--registry|--find-links", line):
                yield f"line {number}: an address or option that names a registry"


def _calls(source: Source) -> Iterator[tuple[int, str]]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield node.lineno, _dotted(node.func)


def _dotted(node: ast.expr) -> str:
    """The called name, as written: `ast.unparse` where it is more than names and dots, which is rare and slow."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


RULES: tuple[Rule, ...] = (
    file_length,
    function_length,
    opens_with_docstring,
    pure_state,
    kafka_only_in_effects,
    offsets_asked_safely,
    transient_asked_once,
    producers_checked,
    clients_ready,
    servicers_only_in_service,
    spark_only_in_spark,
    waits_have_reasons,
    matches_are_complete,
    no_sleeping_tests,
    no_patched_callbacks,
    no_loose_ends,
    no_bare_except,
    no_machine_paths,
    no_registry_addresses,
)
