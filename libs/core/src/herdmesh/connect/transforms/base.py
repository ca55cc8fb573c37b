"""Base classes of transformations: a transformation writes Python code for records of one shape.

Owns the base classes and `Code`, the page that a transformation writes on. Does not compile or run: `chain` does.

In the code that a transformation writes, a record is seven variables: `key`, `value`, `topic`, `partition`, `offset`
(None for a source record), `timestamp` (milliseconds or None) and `headers` (a list of `Header` of the record's own).
The schemas of key and value are known at that time: a transformation is compiled once for each pair of schemas.

Invariant: written code changes only the variables announced with `Code.write`, and never changes a value in place
unless `Code.own` made it the record's own; nested values are never changed in place, since a source may still hold
them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from herdmesh.connect.config import ConfigDef, RawConfig
from herdmesh.connect.errors import ConnectError, DataError
from herdmesh.connect.model import Batch, Header, Schema, Struct, java_class

Column = Literal["key", "value", "topic", "partition", "offset", "timestamp", "headers"]
Part = Literal["key", "value"]
MADE = "made"
"""The name of the list of a struct just made."""


Cells = tuple[Any, Any, str | None, list[Header], int | None, int | None]
"""Key, value, topic, headers, partition and timestamp (milliseconds) of one record."""


class Diverged(Exception):
    """A record of a batch leaves the batch's shape."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Facts known about a record at compile time: the schemas of its key and value (None = without schema), and whether
    it is from a source connector."""

    key: Schema | None = None
    value: Schema | None = None
    source: bool = False

    def of(self, part: Part) -> Schema | None:
        """The schema of that part."""
        return self.key if part == "key" else self.value

    def with_part(self, part: Part, schema: Schema | None) -> Shape:
        """The shape with another schema there."""
        return replace(self, key=schema) if part == "key" else replace(self, value=schema)


@dataclass(frozen=True, slots=True)
class Made:
    """Facts about a struct that the loop made: its schema, and the indexes of the fields that are not null."""

    schema: Schema
    filled: frozenset[int] = frozenset()


class Code:
    """Python source in the making, with the constants it refers to."""

    def __init__(self, *, drop: str, indent: int = 0) -> None:
        """`drop` is the statement that leaves the record out."""
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.reads: set[Column] = set()
        self.writes: set[Column] = set()
        self.owned: set[Column] = set()
        """Variables whose map, if they hold one, belongs to the record and may be changed in place."""
        self.maps: set[Column] = set()
        """Variables known to hold a map."""
        self.made: dict[Column, Made] = {}
        """Variables that hold a struct which the loop itself has just made, and which is not shared."""
        self.drops = False
        self._drop = drop
        self._indent = indent

    def line(self, text: str) -> None:
        """Add one statement at the current indentation."""
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """`head` and a colon; what is added inside is indented. What becomes the record's own inside, or known, is not
        known to be so after it."""
        self.line(f"{head}:")
        owned, maps, made, lines = set(self.owned), set(self.maps), dict(self.made), len(self.lines)
        self._indent += 1
        yield
        if len(self.lines) == lines:
            self.line("pass")
        self._indent -= 1
        self.owned &= owned
        self.maps &= maps
        self.made = {column: known for column, known in made.items() if self.made.get(column) is known}

    def bind(self, value: Any) -> str:
        """A name for a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def read(self, column: Column) -> str:
        """Announce that the variable is looked at, and perhaps kept; returns its name."""
        self.reads.add(column)
        self.made.pop(column, None)
        return column

    def write(self, column: Column, expression: str, *, own: bool = False) -> None:
        """Assign to the variable. `own`: the value is a new map or list that is not shared."""
        self.writes.add(column)
        self.line(f"{column} = {expression}")
        (self.owned.add if own else self.owned.discard)(column)
        self.maps.discard(column)
        self.made.pop(column, None)

    def make(self, column: Column, schema: Schema, values: str) -> None:
        """Assign a new struct to the variable; `values`: an expression for its list, or `MADE`, which holds it."""
        if values != MADE:
            self.line(f"{MADE} = {values}")
        self.write(column, f"{self.bind(Struct.__new__)}({self.bind(Struct)})")  # its constructor takes twice as long
        self.line(f"{column}.schema = {self.bind(schema)}")
        self.line(f"{column}.values = {MADE}")
        self.made[column] = Made(schema)

    def hoist(self, part: Part, after: Schema) -> bool:
        """Make the value in the variable, which is no struct, the one field of a struct; False as in `put_fields`."""
        return False

    def put_fields(self, part: Part, after: Schema, values: Sequence[str]) -> bool:
        """Make the struct in the variable one of another schema, with these expressions as its values; False = it is to
        be written as statements."""
        return False

    def own(self, column: Column) -> str:
        """Make the map in the variable the record's own, so that it may be changed in place; returns its name. Only
        where the variable is known to hold a map."""
        self.reads.add(column)
        if column not in self.owned:
            self.write(column, f"dict({column})", own=True)
        self.maps.add(column)
        return column

    def drop(self) -> None:
        """Leave the record out of what the chain gives."""
        self.drops = True
        self.line(self._drop)

    def compiled(self, name: str) -> tuple[str, Any]:
        """The text, and the function of that name which it defines."""
        source = "\n".join(self.lines) + "\n"
        namespace: dict[str, Any] = dict(self.constants)
        exec(compile(source, f"<{name}>", "exec"), namespace)  # the text is ours: settings only enter through repr
        return source, namespace[name]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A transformation for records of one shape."""

    shape: Shape
    """The schemas of the result."""
    emit: Callable[[Code], None]
    """Writes the statements."""
    null_passes: Part | None = None
    """A record in which this part is null is let through as it is, with the schemas it came with."""


class Transformation(ABC):
    """One transformation class."""

    java_class: ClassVar[str]
    """Java class without the `$Key` / `$Value` part."""
    config_def: ClassVar[ConfigDef]
    of_parts: ClassVar[bool] = False
    """True: there is a class for keys and one for values."""
    touches: frozenset[Column] = frozenset()
    """The columns that it reads or changes, whatever the shape: an untouched column is not even decoded."""
    keeps_json: bool = False
    """True: values without a schema that are `jackson.JsonValues` are so after it, too: it adds no float that is
    infinite or no number, and no map with other keys than texts. Means nothing where it does not touch values."""
    makes_times: ClassVar[bool] = False
    """True: it may give a record another time, which then has to be one that Kafka takes."""

    @property
    def class_name(self) -> str:
        """Java class, as a configuration names it."""
        return self.java_class

    def configure(self, config: RawConfig) -> None:
        """Take the settings below the alias, without prefix; unknown ones are ignored, as in Connect.

        Raises:
            ConfigError: `field` is the key without prefix.
        """
        self._set_up(self.config_def.parse(config))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Take the parsed settings; check what the definition cannot."""

    @abstractmethod
    def compile(self, shape: Shape) -> Compiled:
        """What to do with records of this shape. Raises ConnectError for a shape that every record fails for."""

    def close(self) -> None:
        """Release everything; called once when the task ends."""
        return


class Alone(ABC):
    """A transformation that can process a record by itself, because the schemas of the result depend on the record.

    `compile` raises Diverged for a shape that it does not compile, and its generated code does so for a record that it
    leaves to `alone`.
    """

    @abstractmethod
    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        """The record after it, and its shape; None = it is left out."""


class PartTransformation(Transformation):
    """Works on the key or on the value of a record."""

    of_parts = True
    purpose: str
    """The purpose in Connect's error texts."""
    null_passes: ClassVar[bool]
    """True: a null key or value is returned unchanged, its schema too."""

    def __init__(self, *, on_key: bool = False) -> None:
        self.on_key = on_key
        self.part: Part = "key" if on_key else "value"
        self.touches = self.touches | frozenset[Column]((self.part,))

    @property
    def class_name(self) -> str:
        """Java class with the part it works on."""
        return f"{self.java_class}${'Key' if self.on_key else 'Value'}"

    def compile(self, shape: Shape) -> Compiled:
        schema = shape.of(self.part)
        if schema is None:
            return Compiled(shape, self.emit_schemaless, self.part if self.null_passes else None)
        try:
            after, emit = self.for_schema(schema, shape)
        except ConnectError as error:
            # Java finds out record by record: one that is null there may still pass.
            first = partial(self.other, schema=schema) if self.reads_struct(schema) else None
            after, emit = schema, _refusal(error, self.part, first)
        return Compiled(shape.with_part(self.part, after), emit, self.part if self.null_passes else None)

    def reads_struct(self, schema: Schema) -> bool:
        """Whether a value under this schema is refused unless it is a struct, before anything else is looked at."""
        return True

    @abstractmethod
    def emit_schemaless(self, code: Code) -> None:
        """Write what to do with `self.part` without a schema. It is not None where `null_passes`."""

    @abstractmethod
    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema | None, Callable[[Code], None]]:
        """The schema that comes out, and what writes the statements. The value is not None where `null_passes`.

        Raises:
            ConnectError: what every record under this schema fails with.
        """

    def other(self, value: Any, schema: Schema) -> None:
        """Refuse, under a schema, a value that is no struct."""
        if type(value) is not Struct:
            raise DataError(f"Only Struct objects supported for [{self.purpose}], found: {_class_of(value, schema)}")

    def other_schemaless(self, value: Any) -> None:
        """Refuse, without a schema, a value that is no map."""
        raise DataError(
            f"Only Map objects supported in absence of schema for [{self.purpose}], found: {_class_of(value)}"
        )

    @contextmanager
    def map_only(self, code: Code) -> Generator[str]:
        """A block for a schemaless map, which may be changed in place; anything else is refused. Yields the name of the
        variable."""
        if self.part not in code.maps:
            code.read(self.part)
            with code.block(f"if type({self.part}) is not dict"):
                code.line(f"{code.bind(self.other_schemaless)}({self.part})")
        yield code.own(self.part)

    def struct_only(self, code: Code, schema: Schema) -> None:
        """Refuse a value that is no struct."""
        if self.part in code.made:
            return
        code.read(self.part)
        with code.block(f"if type({self.part}) is not {code.bind(Struct)}"):
            code.line(f"{code.bind(self.other)}({self.part}, {code.bind(schema)})")


def _class_of(value: Any, schema: Schema | None = None) -> str:
    return "null" if value is None else java_class(value, schema)


def _refusal(error: ConnectError, part: Part, first: Callable[[Any], None] | None) -> Callable[[Code], None]:
    def refuse(value: Any) -> None:
        if first is not None:
            first(value)
        raise error

    def emit(code: Code) -> None:
        code.line(f"{code.bind(refuse)}({code.read(part)})")

    return emit
