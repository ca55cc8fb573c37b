"""Base classes of transformations: a transformation writes Python code for records of one shape.

Owns the base classes and `Code`, which collects the code that a transformation writes. `chain` compiles and runs it.

In the generated code a record is seven variables: `key`, `value`, `topic`, `partition`, `offset` (None for a source
record), `timestamp` (milliseconds or None) and `headers` (a list of `Header` that belongs to the record). The schemas
of key and value are known when the code is generated: a transformation is compiled once for each pair of schemas.

Invariant: generated code changes only the variables announced with `Code.write`, and never changes a value in place
unless `Code.own` copied it for the record; nested values are never changed in place, since a source may still hold
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
"""Variable of the value list of the last struct that generated code created."""


Cells = tuple[Any, Any, str | None, list[Header], int | None, int | None]
"""Key, value, topic, headers, partition and timestamp (milliseconds) of one record."""


class Diverged(Exception):
    """Raised for a record of a batch that leaves the batch's shape."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Facts known about a record at compile time: the schemas of its key and value (None = schemaless), and whether it
    is from a source connector.
    """

    key: Schema | None = None
    value: Schema | None = None
    source: bool = False

    def of(self, part: Part) -> Schema | None:
        """The schema of that part."""
        return self.key if part == "key" else self.value

    def with_part(self, part: Part, schema: Schema | None) -> Shape:
        """A copy of the shape with another schema for that part."""
        return replace(self, key=schema) if part == "key" else replace(self, value=schema)


@dataclass(frozen=True, slots=True)
class Made:
    """Facts about a struct that generated code created: its schema, and the indexes of the fields that are not null."""

    schema: Schema
    filled: frozenset[int] = frozenset()


class Code:
    """Generated Python source, with the constants it refers to."""

    def __init__(self, *, drop: str, indent: int = 0) -> None:
        """`drop` is the statement that filters the record."""
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {}
        self.reads: set[Column] = set()
        self.writes: set[Column] = set()
        self.owned: set[Column] = set()
        """Variables whose map, if they hold one, belongs to the record and may be changed in place."""
        self.maps: set[Column] = set()
        """Variables known to hold a map."""
        self.made: dict[Column, Made] = {}
        """Variables that hold a struct which generated code has just created, and which is not shared."""
        self.drops = False
        self._drop = drop
        self._indent = indent

    def line(self, text: str) -> None:
        """Add one statement at the current indentation."""
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Write `head` and a colon, and indent the statements added inside. Facts about variables that statements
        inside establish do not hold after the block.
        """
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
        """Add a constant; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def read(self, column: Column) -> str:
        """Announce that the code reads the variable, and perhaps keeps its value; returns its name."""
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
        """Assign a new struct to the variable; `values`: an expression for its list, or `MADE`, whose variable has the
        list.
        """
        if values != MADE:
            self.line(f"{MADE} = {values}")
        self.write(column, f"{self.bind(Struct.__new__)}({self.bind(Struct)})")  # the constructor takes twice as long
        self.line(f"{column}.schema = {self.bind(schema)}")
        self.line(f"{column}.values = {MADE}")
        self.made[column] = Made(schema)

    def hoist(self, part: Part, after: Schema) -> bool:
        """Wrap the value in the variable, which is no struct, in a struct with one field; False as in `put_fields`."""
        return False

    def put_fields(self, part: Part, after: Schema, values: Sequence[str]) -> bool:
        """Turn the struct in the variable into one of another schema, with these expressions as its values. False = not
        supported: the caller writes statements.
        """
        return False

    def own(self, column: Column) -> str:
        """Copy the map in the variable for the record unless it is a copy already, so that it may be changed in place;
        returns its name. Requires that the variable holds a map.
        """
        self.reads.add(column)
        if column not in self.owned:
            self.write(column, f"dict({column})", own=True)
        self.maps.add(column)
        return column

    def drop(self) -> None:
        """Filter the record: the chain does not return it."""
        self.drops = True
        self.line(self._drop)

    def compiled(self, name: str) -> tuple[str, Any]:
        """The source, and the function of that name which it defines."""
        source = "\n".join(self.lines) + "\n"
        namespace: dict[str, Any] = dict(self.constants)
        exec(compile(source, f"<{name}>", "exec"), namespace)  # generated: settings only enter through repr
        return source, namespace[name]


@dataclass(frozen=True, slots=True)
class Compiled:
    """Transformation compiled for records of one shape."""

    shape: Shape
    """Schemas of the result."""
    emit: Callable[[Code], None]
    """Function that writes the statements."""
    null_passes: Part | None = None
    """The part for which null passes: such a record stays unchanged and keeps its schemas."""


class Transformation(ABC):
    """Base of the transformation classes."""

    java_class: ClassVar[str]
    """Java class without the `$Key` / `$Value` part."""
    config_def: ClassVar[ConfigDef]
    of_parts: ClassVar[bool] = False
    """True: one class transforms keys and another one values."""
    touches: frozenset[Column] = frozenset()
    """The columns that it reads or changes, for every shape. Other columns are not even decoded."""
    keeps_json: bool = False
    """True: the transformation keeps schemaless values within `jackson.JsonValues`. It adds no infinite float and no
    NaN, and no map whose keys are not texts. Irrelevant for a transformation that does not touch values.
    """
    makes_times: ClassVar[bool] = False
    """True: the transformation may change a record's timestamp, which is then checked against Kafka's rules."""

    @property
    def class_name(self) -> str:
        """The Java class, as a config names it."""
        return self.java_class

    def configure(self, config: RawConfig) -> None:
        """Store the settings below the alias, without prefix; unknown ones are ignored, as in Connect.

        Raises:
            ConfigError: `field` is the key without prefix.
        """
        self._set_up(self.config_def.parse(config))

    @abstractmethod
    def _set_up(self, settings: dict[str, Any]) -> None:
        """Store the parsed settings; check the rules that the definition cannot express."""

    @abstractmethod
    def compile(self, shape: Shape) -> Compiled:
        """Compile for records of this shape. Raises ConnectError for a shape for which every record fails."""

    def close(self) -> None:
        """Release all resources; called once when the task ends."""
        return


class Alone(ABC):
    """Transformation that can process a record by itself, because the schemas of the result depend on the record.

    `compile` raises Diverged for a shape that it does not compile, and its generated code raises it for a record that
    needs `alone`.
    """

    @abstractmethod
    def alone(self, cells: Cells, shape: Shape, batch: Batch, at: int) -> tuple[Cells, Shape] | None:
        """The transformed record and its shape; None = the record is filtered."""


class PartTransformation(Transformation):
    """Base of transformations of the key or the value of a record."""

    of_parts = True
    purpose: str
    """Description of the purpose in Connect's error texts."""
    null_passes: ClassVar[bool]
    """True: a null key or value stays unchanged, as does its schema."""

    def __init__(self, *, on_key: bool = False) -> None:
        self.on_key = on_key
        self.part: Part = "key" if on_key else "value"
        self.touches = self.touches | frozenset[Column]((self.part,))

    @property
    def class_name(self) -> str:
        """Java class with `$Key` or `$Value`."""
        return f"{self.java_class}${'Key' if self.on_key else 'Value'}"

    def compile(self, shape: Shape) -> Compiled:
        schema = shape.of(self.part)
        if schema is None:
            return Compiled(shape, self.emit_schemaless, self.part if self.null_passes else None)
        try:
            after, emit = self.for_schema(schema, shape)
        except ConnectError as error:
            # Java reports the error record by record: a record with null in this part may still pass.
            first = partial(self.other, schema=schema) if self.reads_struct(schema) else None
            after, emit = schema, _refusal(error, self.part, first)
        return Compiled(shape.with_part(self.part, after), emit, self.part if self.null_passes else None)

    def reads_struct(self, schema: Schema) -> bool:
        """True when a value under this schema is refused unless it is a struct, before any other check."""
        return True

    @abstractmethod
    def emit_schemaless(self, code: Code) -> None:
        """Write the statements for `self.part` without a schema. The part is not None where `null_passes`."""

    @abstractmethod
    def for_schema(self, schema: Schema, shape: Shape) -> tuple[Schema | None, Callable[[Code], None]]:
        """The schema of the result, and the function that writes the statements. The value is not None where
        `null_passes`.

        Raises:
            ConnectError: the error of every record under this schema.
        """

    def other(self, value: Any, schema: Schema) -> None:
        """Refuse a value that is no struct, under a schema."""
        if type(value) is not Struct:
            raise DataError(f"Only Struct objects supported for [{self.purpose}], found: {_class_of(value, schema)}")

    def other_schemaless(self, value: Any) -> None:
        """Refuse a value that is no map, without a schema."""
        raise DataError(
            f"Only Map objects supported in absence of schema for [{self.purpose}], found: {_class_of(value)}"
        )

    @contextmanager
    def map_only(self, code: Code) -> Generator[str]:
        """Write the refusal of any value but a schemaless map. In the block the map may be changed in place. Yields the
        name of its variable.
        """
        if self.part not in code.maps:
            code.read(self.part)
            with code.block(f"if type({self.part}) is not dict"):
                code.line(f"{code.bind(self.other_schemaless)}({self.part})")
        yield code.own(self.part)

    def struct_only(self, code: Code, schema: Schema) -> None:
        """Write the refusal of a value that is no struct."""
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
