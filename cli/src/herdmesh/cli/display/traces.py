"""Stack traces for people: the frames of the user's code, without those of Herdmesh, Spark and the standard library.

Owns the choice of frames, for Python's traces and for Java's. Changes no message. Invariant: the exceptions with their
messages and causes always stay, and each group of omitted frames is counted in the text.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from typing import Final

_FRAME: Final = re.compile(r'^(?P<indent>[\s|+]*)File "(?P<path>[^"]*)", line \d+')
_OUR_PATHS: Final = re.compile(
    r"[/\\](?:site-packages|dist-packages|src)[/\\]herdmesh[/\\]|[/\\]pyspark[/\\]|[/\\]py4j[/\\]|^<(?!stdin)"
)
_DEPENDENCIES: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\](?:anyio|azure|boto3|botocore|confluent_kafka|fastavro|google|grpc|h11|httpcore|httpx|"
    r"hvac|msgspec|numpy|opentelemetry|psycopg|pyarrow|pydantic|requests|urllib3)[/\\]"
)
"""Packages that Herdmesh's connectors and config providers call. A user's plugin may be in the same folder."""
_STANDARD: Final = re.compile(r"[/\\]python3(?:\.\d+)?[/\\](?!(?:site|dist)-packages[/\\])")
_JAVA_FRAME: Final = re.compile(r"^\s+at (?P<place>[\w.$/@-]+)\(")
_JAVA_LIBRARIES: Final = ("java.", "javax.", "jdk.", "sun.", "scala.", "py4j.", "org.apache.spark.", "java.base/")
_STANDARD_FOLDER: Final = sysconfig.get_paths()["stdlib"]


def shortened(trace: str) -> tuple[str, int]:
    """The trace with the user's frames only, and the number of frames left out. A trace without any of the user's
    frames is reduced to its exceptions.
    """
    lines, hidden, total = list[str](), 0, 0
    for is_hidden, of_frame in _parts(trace.splitlines()):
        if is_hidden:
            hidden, total = hidden + 1, total + 1
            continue
        if hidden and lines:
            lines.append(_omitted(hidden))
        hidden = 0
        lines += of_frame
    if not total:
        return trace, 0
    return "\n".join(line for at, line in enumerate(lines) if not _is_empty_heading(lines, at)), total


def _omitted(frames: int) -> str:
    return f"  ... {frames} {'frame' if frames == 1 else 'frames'} of libraries"


def _is_empty_heading(lines: list[str], at: int) -> bool:
    """True for the heading of a trace whose frames are all left out, and for the note that stands for them alone."""
    heading = "Traceback (most recent call last):"
    if lines[at].strip(" |+") == heading:
        rest = [line for line in lines[at + 1 :] if not line.startswith("  ... ")]
        return not rest or _FRAME.match(rest[0]) is None
    if not lines[at].startswith("  ... "):
        return False
    return at > 0 and lines[at - 1].strip(" |+") == heading and _is_empty_heading(lines, at - 1)


def _parts(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """The lines in groups: one frame with its code lines, or one other line. True for a frame to leave out."""
    at = 0
    while at < len(lines):
        frame = _FRAME.match(lines[at])
        if frame is None:
            java = _JAVA_FRAME.match(lines[at])
            yield java is not None and java["place"].startswith(_JAVA_LIBRARIES), [lines[at]]
            at += 1
            continue
        end = at + 1
        inner = len(frame["indent"]) + 1
        while end < len(lines) and len(lines[end]) - len(lines[end].lstrip(" |")) >= inner:
            if _FRAME.match(lines[end]):
                break
            end += 1
        yield _is_library(frame["path"]), lines[at:end]
        at = end


def _is_library(path: str) -> bool:
    return bool(_OUR_PATHS.search(path) or _DEPENDENCIES.search(path) or _STANDARD.search(path)) or (
        path.startswith(_STANDARD_FOLDER) and "-packages" not in path
    )
