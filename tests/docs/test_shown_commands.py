"""Commands and outputs of pages that would take a network or minutes to run: each is checked against the code instead.

A `bash` block has commands that another test runs: `make dist-check` (tests/install), `make setup`, a page that is run,
tests/e2e/test_herd.py, or `make soak ARGS=lakehouse` (docs/connectors/spark.md). Here each command is parsed by the
command line, and looked for there. The outputs on docs/how-to/install.md and docs/how-to/standalone.md, and the
unusable plugin on docs/how-to/plugins.md, are compared with the output of the code, the form of a commit message in
docs/STYLE.md with the rule for subjects.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import grpc
import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from herdmesh.api.herder.v1 import admin_messages_pb2 as admin
from herdmesh.cli.app import app
from herdmesh.cli.commands.get import print_refused_plugins
from herdmesh.cli.commands.run import listening_text
from herdmesh.cli.display.output import out
from herdmesh.cli.grammar import canonical, with_values
from herdmesh.sdk.spark import task_session
from herdmesh.standalone.process import Addresses
from libs.connectors.tests.spark import lake
from tests.docs.blocks import ROOT, blocks, pages
from tests.docs.test_blocks import RUN_BY
from tests.tidy.test_commits import what_is_wrong

LINES: Final = [
    pytest.param(line.split(" #")[0].strip(), id=f"{page}: {line.split(' #')[0].strip()}")
    for page in pages()
    for block in blocks(page)
    if block.language == "bash"
    for line in block.text.splitlines()
]
#: Tests whose calls of `herd(...)`, `herd_process(...)`, `.herd(...)` and `.json(...)` run a command.
_CALLERS: Final = ("tests/install/scenario.py", "tests/e2e/test_herd.py")
_PYTHON: Final = re.compile(r"\(Python [\d.]+\)")


def test_there_are_commands() -> None:
    assert len(LINES) > 10


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_a_bash_block_is_valid_and_run_elsewhere(line: str) -> None:
    program, *arguments = shlex.split(line.replace("~/herdmesh/bin/", ""))
    match program, arguments:
        case "herd", _:
            command = _parsed(arguments)
            assert command in _run_elsewhere(), f"no test runs herd {' '.join(command)}"
        case "pip", ["install", "herdmesh"]:
            assert '"install", "--quiet", "herdmesh"' in (ROOT / "tests/install/__main__.py").read_text("utf-8")
        case "pip", ["install", "--no-deps", "--target", folder, _]:
            assert arguments == lake.install_arguments(folder)
        case "export", [setting, *_]:  # tests/e2e/test_spark_page.py runs it in the soak
            assert setting.partition("=")[0] in (task_session.HOME_VARIABLE, task_session.JARS_VARIABLE)
        case "python3", ["-m", "venv", _]:
            assert '"-m", "venv"' in (ROOT / "tests/install/__main__.py").read_text("utf-8")
        case "python", ["-m", module, *rest]:
            assert find_spec(module) is not None
            assert " ".join(["python -m", module, *rest]) in (ROOT / "Makefile").read_text("utf-8")
        case _:
            pytest.fail(f"no check for {line}")


def test_the_versions_on_the_install_page_are_those_of_the_command(herder: str) -> None:
    alone, with_herders = (block.text for block in blocks("docs/how-to/install.md") if block.language == "text")
    printed = CliRunner().invoke(app, ["version"], catch_exceptions=False).stdout
    assert _plain(printed) == _plain(alone)
    printed = CliRunner().invoke(app, ["version", "--herder", herder], catch_exceptions=False).stdout
    assert _plain(printed) == _plain(with_herders.replace("127.0.0.1:7203", herder))


def test_the_first_lines_on_the_standalone_page_are_those_of_herd_run() -> None:
    (shown,) = (block.text for block in blocks("docs/how-to/standalone.md") if block.language == "text")
    config_store, status_store = re.findall(r"-store (\S+:\d+)", shown)
    assert listening_text(Addresses("127.0.0.1:7203", config_store, status_store)) + "\n" == shown


def test_the_unusable_plugin_on_the_plugins_page_is_printed_as_the_command_prints_it() -> None:
    _, shown = (block.text for block in blocks("docs/how-to/plugins.md") if block.language == "text")
    form = r"NOT USED (?P<folder>\S+) \((?P<plugin>\S+)\) on (?P<worker>\S+): (?P<why>.+)\nnext: (?P<fix>.+)\n"
    found = re.fullmatch(form, shown)
    assert found is not None
    with out.capture() as printed:
        print_refused_plugins([{**found.groupdict(), "workers": [found["worker"]]}])
    assert printed.get().lstrip("\n") == shown
    folder_scan = ROOT / "services/worker/src/herdmesh/worker/effects/plugins/folder_scan.py"
    assert found["fix"] in folder_scan.read_text("utf-8")


def test_the_form_of_a_commit_message_keeps_the_rule_for_subjects() -> None:
    (form,) = (block.text for block in blocks("docs/STYLE.md") if block.language == "text")
    subject, blank, *body = form.splitlines()
    assert (what_is_wrong(subject), blank) == ("", "")
    assert all(len(line) <= 80 for line in body)


@pytest.fixture
def herder() -> Iterator[str]:
    """Address of a leading herder of this release that answers GetCluster and nothing else."""
    answer = admin.GetClusterResponse(version=version("herdmesh-cli"), epoch=1)

    def cluster(_request: Any, _context: Any) -> Any:
        return answer

    get_cluster: Any = grpc.unary_unary_rpc_method_handler(
        cluster,
        request_deserializer=admin.GetClusterRequest.FromString,
        response_serializer=admin.GetClusterResponse.SerializeToString,
    )
    server: Any = grpc.server(ThreadPoolExecutor(1))
    service = "herdmesh.api.herder.v1.ConnectorService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"GetCluster": get_cluster}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def _plain(text: str) -> list[list[str]]:
    """The words of each line, without Python's version."""
    return [_PYTHON.sub("(Python)", line).split() for line in text.splitlines()]


def _parsed(arguments: list[str]) -> tuple[str, ...]:
    """The names of the command. Raises UsageError for an unknown command or option."""
    command: Any = typer.main.get_command(app)
    arguments = canonical(command, arguments)
    context, names = typer.Context(command, info_name="herd"), list[str]()
    while isinstance(command, TyperGroup):
        name, command, arguments = command.resolve_command(context, arguments)
        assert name is not None
        assert command is not None
        context, names = typer.Context(command, info_name=name, parent=context), [*names, name]
    command.make_parser(context).parse_args(with_values(command.params, arguments))
    return tuple(names)


@cache
def _run_elsewhere() -> frozenset[tuple[str, ...]]:
    """The commands of pages that are run, and those in the calls of `_CALLERS`."""
    lines = [
        line.split(" #")[0]
        for page in RUN_BY
        for block in blocks(page)
        if block.language == "sh"
        for line in block.text.splitlines()
        if line.startswith("herd ")
    ]
    found = {_parsed(shlex.split(re.split(r" [|<>]", line)[0])[1:]) for line in lines}
    for path in _CALLERS:
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            if isinstance(node, ast.Call | ast.List) and (words := _words(node)):
                found |= {tuple(words[:count]) for count in (1, 2)}
    return frozenset(found)


def _words(node: ast.Call | ast.List) -> list[str]:
    """The constant texts of a call that runs `herd`, or of a list that begins with "herd", without that word."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return _texts(node.args) if name in ("herd", "herd_process", "json") else []
    first, *others = _texts(node.elts) or [""]
    return others if first == "herd" else []


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
