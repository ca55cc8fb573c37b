"""Properties of every chain: fused, it gives the results of its single steps, failures included; a source's values
stay unchanged; values that no step reads are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal, TypeVar, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herdmesh.connect.chain.compiled_loop import Cells, Diverged, Loop, Single, Step
from herdmesh.connect.chain.record_chain import SinkChain, SourceChain
from herdmesh.connect.chain.record_failure_policy import STRICT, Attempts
from herdmesh.connect.converters import make_converter
from herdmesh.connect.converters.simple_header import SimpleHeaderConverter
from herdmesh.connect.converters.string import StringConverter
from herdmesh.connect.errors import RecordError
from herdmesh.connect.model.data import Batch, Float32, Header, Int8, Int32, JavaDate, Struct
from herdmesh.connect.model.schemas import (
    Schema,
    SchemaBuilder,
    date_schema,
    decimal_schema,
    time_schema,
    timestamp_schema,
)
from herdmesh.connect.model.struct_column import StructColumn
from herdmesh.connect.transforms import make_transformation
from herdmesh.connect.transforms.base import Shape
from herdmesh.connect.transforms.predicates import PREDICATES, Predicate
from tests.support.sizes import soak_or

NAMES = ("a", "b", "c", "d.e", "s")
FIELD = st.sampled_from(NAMES)
FIELDS = st.lists(FIELD, min_size=1, max_size=3).map(",".join)
MANY = settings(
    max_examples=soak_or(150, 3_000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

Config = dict[str, str]


def options(*needed: str, **values: st.SearchStrategy[str]) -> st.SearchStrategy[Config]:
    """The needed options and any of the others, with dots for underscores."""
    named = {name.replace("_", "."): strategy for name, strategy in values.items()}
    return st.fixed_dictionaries({name: named.pop(name) for name in needed}, optional=named)


def header_from(fields: str, operation: str) -> Config:
    return {"fields": fields, "headers": fields, "operation": operation}


def timestamp_converter(field: str, target: str, precision: str) -> Config:
    return {"field": field, "target.type": target, "unix.precision": precision, "format": "yyyy-MM-dd HH"}


BOOLEAN = st.sampled_from(["true", "false"])
TARGETS = st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"])
TYPES = st.sampled_from(["int8", "int64", "float32", "float64", "boolean", "string"])
OF_PARTS: dict[str, st.SearchStrategy[Config]] = {
    "Cast": (TYPES | st.builds("{}:{}".format, FIELD, TYPES)).map(lambda spec: {"spec": spec}),
    "ExtractField": options("field", field=FIELD, field_syntax_version=st.sampled_from(["V1", "V2"])),
    "Flatten": options(delimiter=st.sampled_from([".", "_"])),
    "HeaderFrom": st.builds(header_from, FIELDS, st.sampled_from(["move", "copy"])),
    "HoistField": options("field", field=FIELD),
    "InsertField": st.sampled_from(["topic", "partition", "offset", "timestamp", "static"]).flatmap(
        lambda one: options(
            f"{one}.field", "static.value", topic_field=FIELD, partition_field=FIELD, offset_field=st.just("o!"),
            timestamp_field=st.just("t"), static_field=st.just("n?"), static_value=st.just("x"),
            replace_null_with_default=BOOLEAN,
        )
    ),
    "MaskField": options(
        "fields", fields=FIELDS, replacement=st.sampled_from(["7", "x"]), replace_null_with_default=BOOLEAN
    ),
    "ReplaceField": options(
        exclude=FIELDS, include=FIELDS, renames=st.builds("{}:{}".format, FIELD, FIELD | st.just("z")),
        replace_null_with_default=BOOLEAN,
    ),
    "SetSchemaMetadata": st.sampled_from(["schema.name", "schema.version"]).flatmap(
        lambda one: options(one, schema_name=st.just("n"), schema_version=st.just("3"))
    ),
    "TimestampConverter": st.builds(
        timestamp_converter, FIELD | st.just(""), TARGETS, st.sampled_from(["seconds", "milliseconds", "nanoseconds"])
    ),
}  # fmt: skip
WHOLE: dict[str, st.SearchStrategy[Config]] = {
    "DropHeaders": options("headers", headers=FIELDS),
    "Filter": st.just({}),
    "InsertHeader": st.just({"header": "a", "value.literal": "1"}),
    "RegexRouter": options(
        "regex", "replacement", regex=st.sampled_from(["t(.*)", "(.)", "u"]), replacement=st.sampled_from(["u$1", "$2"])
    ),
    "TimestampRouter": options(topic_format=st.sampled_from(["${topic}-${timestamp}", "t"])),
    "ValueToKey": options("fields", fields=FIELDS),
}
PREDICATE_CONFIGS: dict[str, st.SearchStrategy[Config]] = {
    "HasHeaderKey": options("name", name=FIELD),
    "RecordIsTombstone": st.just({}),
    "TopicNameMatches": options("pattern", pattern=st.sampled_from(["t.*", "u"])),
}


@st.composite
def steps(
    draw: st.DrawFn,
    classes: Sequence[str] = (*OF_PARTS, *WHOLE),
    parts: Sequence[str] = ("$Value", "$Value", "$Key"),
    predicates: Sequence[str] = sorted(PREDICATE_CONFIGS),
) -> Step:
    """A step with a valid configuration."""
    name = draw(st.sampled_from(classes))
    made = make_transformation("type", name + (draw(st.sampled_from(parts)) if name in OF_PARTS else ""))
    made.configure(draw({**OF_PARTS, **WHOLE}[name]))
    predicate: Predicate | None = None
    if draw(st.integers(0, 3)) == 0:
        which = draw(st.sampled_from(predicates))
        predicate = PREDICATES[which]()
        predicate.configure(draw(PREDICATE_CONFIGS[which]))
    return Step(name, made, predicate, predicate is not None and draw(st.booleans()))


def chains() -> st.SearchStrategy[list[Step]]:
    return st.lists(steps(), min_size=1, max_size=4)


BESIDE_VALUES = st.lists(
    steps(
        ("DropHeaders", "RegexRouter", "TimestampRouter", "InsertHeader", "Filter"),
        predicates=("HasHeaderKey", "TopicNameMatches"),
    ),
    min_size=1,
    max_size=4,
)
"""Chains in which no step reads a value."""


def schema(type: str) -> tuple[Schema, st.SearchStrategy[Any]]:
    return Schema(type), VALUES[type]


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT8": st.integers(-128, 127),
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "INT64": st.integers(-(2**40), 2**40),
    "FLOAT32": st.sampled_from([0.0, 1.5, -2.25]),
    "FLOAT64": st.floats(allow_nan=False),
    "BOOLEAN": st.booleans(),
    "STRING": st.text(max_size=3) | st.just("2024-02-03 04"),
    "BYTES": st.binary(max_size=3),
}
DATES = st.integers(0, 10_000).map(lambda days: JavaDate(days * 86_400_000))
KINDS: list[tuple[Schema, st.SearchStrategy[Any]]] = [
    *map(schema, VALUES),
    (timestamp_schema(), st.integers(-(2**40), 2**40).map(JavaDate)),
    (date_schema(), DATES),
    (time_schema(), st.integers(0, 86_399_999).map(JavaDate)),
    (decimal_schema(2), st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2))),
]
Kind = tuple[Schema, st.SearchStrategy[Any]]


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2, *, struct: bool = False) -> Kind:
    """A schema and a strategy of its values."""
    if not struct and (depth == 0 or draw(st.integers(0, 3))):
        made, values = draw(st.sampled_from(KINDS))
    else:
        fields = {name: draw(kinds(depth - 1)) for name in draw(st.lists(FIELD, unique=True, max_size=4))}
        builder = SchemaBuilder("STRUCT")
        for name, (inner, _) in fields.items():
            builder.field(name, inner)
        made = builder.build()
        optional = draw(st.booleans())
        made = made.replace(optional=optional)
        items = st.tuples(*(inner for _, inner in fields.values()))
        whole = made

        def struct_of(values: tuple[Any, ...]) -> Struct:
            return Struct(whole, list(values))

        structs = items.map(struct_of)
        return made, st.none() | structs if optional else structs
    if draw(st.booleans()):
        made = made.replace(optional=True)
        values = st.none() | values
        if made.type in ("INT32", "STRING") and made.name is None and draw(st.booleans()):
            made = made.replace(default=5 if made.type == "INT32" else "dflt")
    return made, values


PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.sampled_from([Int8(1), Int32(2), Float32(1.5), JavaDate(5), Decimal("1.5"), b"x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELD, inner, max_size=3),
    max_leaves=5,
)
MAPS = st.dictionaries(FIELD, PLAIN, max_size=4)
HEADERS = st.lists(st.builds(Header, FIELD, st.integers(0, 3)), max_size=2)


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, bool]:
    """Records of one shape, and whether they are a source's."""
    count = draw(st.integers(1, 3))
    schemaless: Kind = (cast("Schema", None), st.none() | MAPS | MAPS | PLAIN)
    part: Callable[[], Kind] = lambda: draw(st.just(schemaless) | kinds(struct=True) | kinds(struct=True) | kinds())  # noqa: E731
    (key_schema, keys), (value_schema, values) = part(), part()
    source = draw(st.booleans())

    def column(one: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(one, min_size=count, max_size=count))

    times = st.none() | st.integers(0, 2**41) if draw(st.booleans()) else st.integers(0, 2**41)
    return Batch(
        draw(st.sampled_from(["t", "test", "u"])), None if source else 2, column(keys), column(values),
        () if source else range(7, 7 + count), column(times), key_schema, value_schema, column(HEADERS),
    ), source  # fmt: skip


def told(value: Any) -> Any:
    """Everything that distinguishes a value, its type included."""
    if isinstance(value, Struct):
        return "struct", value.schema, [told(item) for item in value.values]
    if isinstance(value, dict):
        return {key: told(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [told(item) for item in cast("list[Any]", value)]
    if isinstance(value, Header):
        return value.key, told(value.value), value.schema
    return type(value).__name__, repr(value)


Told = tuple[Any, Any, Any, str | None, Schema | None, Schema | None, int | None]


def one_by_one(chain: Sequence[Step], batch: Batch, shape: Shape) -> list[Told]:
    """Every record alone, through every step alone. Raises for the first that fails."""
    found: list[Told] = []
    for at in range(len(batch.values)):
        now = shape
        headers, time_ms = list(batch.headers[at]), batch.timestamps_ms[at]
        cells: Cells | None = (batch.keys[at], batch.values[at], batch.topic, headers, batch.partition, time_ms)
        for step in chain:
            if step.applies(cells, now, batch, at):
                after = Single(step, now).run(cells, batch, at)
                if after is None:
                    cells = None
                    break
                cells, now = after
        if cells is not None:
            key, value, topic, headers, _, time = cells
            found.append((told(key), told(value), told(headers), topic, now.key, now.value, time))
    return found


def fused(chain: Sequence[Step], batch: Batch, shape: Shape, *, owned: bool) -> list[Told]:
    """All records through one loop. Raises for the first that fails, or Diverged."""
    made = Loop(chain, shape, owned=owned).run(batch)
    topics = made.topics or [made.topic] * len(made.values)
    return [
        (told(key), told(value), told(headers), topic, made.key_schema, made.value_schema, time)
        for key, value, headers, topic, time in zip(
            made.keys, made.values, made.headers, topics, made.timestamps_ms, strict=True
        )
    ]


def outcome(call: Callable[[], list[Told]]) -> Any:
    """The result or the error of the call."""
    try:
        return call()
    except Diverged:
        raise
    except Exception as error:  # noqa: BLE001 - both ways must raise the same error, whatever it is
        return type(error).__name__, str(error)


@MANY
@given(chains(), batches())
def test_a_fused_chain_equals_its_single_steps_and_changes_no_source_value(
    chain: list[Step], given_batch: tuple[Batch, bool]
) -> None:
    batch, source = given_batch
    shape = Shape(batch.key_schema, batch.value_schema, source=source)
    before = told([*batch.keys, *batch.values, *batch.headers])
    wanted = outcome(lambda: one_by_one(chain, batch, shape))
    try:
        found = outcome(lambda: fused(chain, replace(batch, headers=[*map(list, batch.headers)]), shape, owned=False))
    except Diverged:
        found = wanted  # the chain falls back to single records then
    assert found == wanted
    assert told([*batch.keys, *batch.values, *batch.headers]) == before


MOVES = ("Cast", "HoistField", "InsertField", "MaskField", "ReplaceField", "SetSchemaMetadata", "TimestampConverter")
"""Steps that build one struct from fields of another."""


@st.composite
def field_batches(draw: st.DrawFn) -> Batch:
    """Records with a value under a schema, none of them null where that is a struct."""
    schema, values = draw(kinds(struct=True) | kinds(struct=True) | kinds())
    if schema.type == "STRUCT":
        values = values.filter(lambda value: value is not None)
    count = draw(st.integers(1, 3))
    made = draw(st.lists(values, min_size=count, max_size=count))
    times = draw(st.lists(st.none() | st.integers(0, 2**41), min_size=count, max_size=count))
    key_schema = draw(st.none() | st.just(Schema("STRING")))
    keys = [None if key_schema is None else "k"] * count
    return Batch("t", draw(st.sampled_from([2, None])), keys, made, range(7, 7 + count), times, key_schema, schema,
                 [[] for _ in made])  # fmt: skip


def by_columns_as_by_records(chain: Sequence[Step], batch: Batch) -> bool:
    """Check that columns and records give the same, failures included, and change no input; returns whether columns
    were used.
    """
    schema = batch.value_schema
    assert schema is not None
    shape = Shape(batch.key_schema, schema)
    before = told([*batch.values])
    wanted = outcome(lambda: one_by_one(chain, batch, shape))
    values = column(schema, batch.values) if schema.type == "STRUCT" else batch.values
    # A sink's batch has no schemas of its own: they are those of its shape.
    columns = replace(batch, values=values, headers=[[] for _ in batch.values], key_schema=None, value_schema=None)
    try:
        found = outcome(lambda: fused(chain, columns, shape, owned=True))
    except Diverged:
        return False  # the chain falls back to single records then
    assert found == wanted
    assert told([*values]) == told([*batch.values]) == before
    if isinstance(wanted, tuple):  # an error
        return False
    values = column(schema, batch.values) if schema.type == "STRUCT" else batch.values
    return isinstance(Loop(chain, shape, owned=True).run(replace(columns, values=values)).values, StructColumn)


@MANY
@given(st.lists(steps(MOVES, ("$Value",), ("RecordIsTombstone",)), min_size=1, max_size=3), field_batches())
def test_columns_of_fields_give_the_results_of_records(chain: list[Step], batch: Batch) -> None:
    by_columns_as_by_records(chain, batch)


def test_values_that_columns_cannot_express_are_processed_record_by_record() -> None:
    """A forbidden null fails as with single records; a step with a predicate is applied to its records only."""
    text, maybe = Schema("STRING"), Schema("STRING", optional=True)
    schema = SchemaBuilder("STRUCT").field("a", maybe).field("b", text).build()
    structs = [Struct(schema, ["p", "q"]), Struct(schema, [None, "r"])]
    batch = Batch("t", None, [None] * 2, structs, range(2), [5, None], None, schema, [[], []])
    late = step("InsertField", {"timestamp.field": "t!"})
    swapped = step("ReplaceField", {"renames": "a:b", "exclude": "a"})
    never = PREDICATES["RecordIsTombstone"]()
    never.configure({})
    masked = step("MaskField", {"fields": "b"})
    for chain in ([late], [late, masked], [swapped], [step("HoistField", {"field": "h"})],
                  [Step("MaskField", masked.transformation, never)]):  # fmt: skip
        assert not by_columns_as_by_records(chain, batch)
    assert by_columns_as_by_records([masked], batch)
    assert by_columns_as_by_records([swapped], replace(batch, values=[structs[0], structs[0]]))
    hoisted = [step("HoistField", {"field": "h"})]
    texts = replace(batch, values=["p", None])
    assert not by_columns_as_by_records(hoisted, replace(texts, value_schema=text))
    assert by_columns_as_by_records(hoisted, replace(texts, value_schema=maybe))


def column(schema: Schema, structs: Sequence[Any]) -> StructColumn:
    """The structs as a column of fields."""
    fields = [[struct.values[place] for struct in structs] for place in range(len(schema.fields))]
    return StructColumn(schema, fields, len(structs))


def test_ordinary_chains_use_columns() -> None:
    """Otherwise the property above would compare the loop over records with itself."""
    schema = SchemaBuilder("STRUCT").field("a", Schema("STRING")).field("b", Schema("INT32", optional=True)).build()
    config: dict[str, Config] = {
        "InsertField": {"static.field": "x[0]", "static.value": "x[1]", "offset.field": "o", "timestamp.field": "t"},
        "MaskField": {"fields": "a"},
        "Cast": {"spec": "b:string"},
        "ReplaceField": {"renames": "a:z", "exclude": "x[0]"},
    }
    chain = [step(name, options) for name, options in config.items()]
    values = column(schema, [Struct(schema, ["p", 1]), Struct(schema, ["q", None])])
    made = Loop(chain, Shape(None, schema), owned=True).run(
        Batch("t", 0, (), values, range(7, 9), [5, None], value_schema=schema)
    )
    assert isinstance(made.values, StructColumn)
    assert made.values.fields == [["", ""], ["1", None], [7, 8], [JavaDate(5), None]]
    assert values.fields is not None
    assert [struct.values for struct in made.values] == [["", "1", 7, JavaDate(5)], ["", None, 8, None]]


def test_texts_that_become_a_field_use_columns() -> None:
    chain = [step("HoistField", {"field": "a"}), step("InsertField", {"static.field": "s", "static.value": "x"})]
    loop = Loop(chain, Shape(None, Schema("STRING"), source=True), owned=False)
    made = loop.run(Batch("t", None, (), ["p", "q"], value_schema=Schema("STRING")))
    assert isinstance(made.values, StructColumn)
    assert made.values.fields == [["p", "q"], ["x", "x"]]
    assert [struct.values for struct in made.values] == [["p", "x"], ["q", "x"]]


def step(name: str, config: Config) -> Step:
    """A step on values."""
    made = make_transformation("type", f"{name}$Value")
    made.configure(config)
    return Step(name, made)


def test_structs_that_were_read_override_the_columns() -> None:
    schema = SchemaBuilder("STRUCT").field("a", Schema("STRING")).build()
    converter = make_converter("c", {"c": "JsonConverter", "c.schemas.enable": "false"}, role="value")
    values = column(schema, [Struct(schema, ["p"])] * 20)
    assert converter.write_many(values, schema) == [b'{"a":"p"}'] * 20
    values[3].put("a", "changed")
    assert values.fields is None
    assert converter.write_many(values, schema)[2:4] == [b'{"a":"p"}', b'{"a":"changed"}']


@MANY
@given(chains(), st.lists(MAPS | st.none(), min_size=1, max_size=3))
def test_changing_an_owned_map_in_place_gives_the_same_result(
    chain: list[Step], maps: list[dict[str, Any] | None]
) -> None:
    count = len(maps)
    batch = Batch("t", 0, [None] * count, maps, range(count), [5] * count, headers=[[] for _ in maps])
    wanted = outcome(lambda: one_by_one(chain, batch, Shape()))
    try:
        found = outcome(lambda: fused(chain, batch, Shape(), owned=True))
    except Diverged:
        return
    assert found == wanted


@settings(max_examples=soak_or(60, 2_000), deadline=None)
@given(chains(), batches())
def test_a_source_chain_names_the_first_record_that_fails(chain: list[Step], given_batch: tuple[Batch, bool]) -> None:
    batch = replace(given_batch[0], partition=None, offsets=())
    before = told([*batch.keys, *batch.values, *batch.headers])
    shape = Shape(batch.key_schema, batch.value_schema, source=True)
    wanted = outcome(lambda: one_by_one(chain, batch, shape))
    key, value = strings(StringConverter(), "key"), strings(StringConverter(), "value")
    run = SourceChain(key, value, SimpleHeaderConverter(), chain)
    failed: RecordError | None = None
    made: list[Batch] = []
    try:
        made = run.run(batch)
    except RecordError as error:
        failed = error
    if failed is None:
        assert sum(len(one.values) for one in made) == len(wanted)
    elif failed.stage == "TRANSFORMATION":
        assert wanted == (type(failed.cause).__name__, str(failed.cause))
    assert told([*batch.keys, *batch.values, *batch.headers]) == before


T = TypeVar("T")


class _Eager:
    """Requests decoding of all values before the chain, and tolerates no error."""

    eager = True

    def attempt(self, call: Callable[[], T], stage: str, step: object, batch: Batch, at: int) -> T:
        return STRICT.attempt(call, stage, step, batch, at)


class _Watched(StringConverter):
    """Notes that a batch was decoded."""

    decoded = False

    def read_many(self, column: Sequence[bytes | None]) -> Any:
        self.decoded = True
        return super().read_many(column)


def strings(made: StringConverter, role: Literal["key", "value"]) -> StringConverter:
    made.configure({}, role)
    return made


@settings(max_examples=soak_or(60, 2_000), deadline=None)
@given(BESIDE_VALUES)
def test_values_that_no_step_reads_are_not_decoded(chain: list[Step]) -> None:
    watched = _Watched()
    run = SinkChain(
        strings(StringConverter(), "key"), strings(watched, "value"), SimpleHeaderConverter(), chain, keys=False
    )
    batch = Batch("t", 0, [b"k"], [b"v"], [1], [5], headers=[[("a", b"1")]])
    try:
        made = run.run(batch)
    except RecordError:
        return  # failures are searched record by record, from the bytes on
    assert not watched.decoded
    assert [list(one.values) for one in made] in ([], [["v"]])


ENVELOPES = [
    b'{"payload": 1, "schema": {"type": "int32"}}',
    b'{"schema":{"type":"double","optional":false},"payload":1}',
    b'{"schema":{"optional":true,"type":"string"},"payload":"\\u0061"}',
    b'{"schema":{"type":"int32","optional":true,"default":7},"payload":null}',
    b'{"schema":{"type":"struct","fields":[{"type":"int8","field":"a"}]},"payload":{"b":2,"a":1}}',
]
"""JSON with schemas as other programs write it: Java would write each with other bytes."""


@given(st.sampled_from(ENVELOPES))
def test_json_with_schemas_is_not_copied_as_bytes_since_java_writes_other_bytes(data: bytes) -> None:
    converter = make_converter("c", {"c": "JsonConverter"}, role="value")
    schema, value = converter.read(data)
    written = converter.write(value, schema)
    assert written is not None
    assert written != data
    schema, value = converter.read(written)
    assert converter.write(value, schema) == written


@settings(max_examples=soak_or(60, 2_000), deadline=None)
@given(
    BESIDE_VALUES,
    st.lists(
        st.none() | st.binary(max_size=6) | st.sampled_from([b"1.0", b'{"a":[1,null]}', b'"x"', *ENVELOPES]), min_size=1
    ),
    st.sampled_from(["StringConverter", "ByteArrayConverter", "JsonConverter", "JsonConverter with schemas"]),
)
def test_a_copy_of_undecoded_bytes_equals_decoding_and_encoding(
    chain: list[Step], column: list[bytes | None], name: str
) -> None:
    config = {"c": name.split()[0], "c.schemas.enable": "true" if "with schemas" in name else "false"}
    converter = make_converter("c", config, role="value")
    run = SinkChain(strings(StringConverter(), "key"), converter, SimpleHeaderConverter(), chain, keys=False)

    def copied(column: list[bytes | None], attempts: Attempts) -> list[bytes | None] | str:
        count = len(column)
        batch = Batch("t", 0, [b"k"] * count, column, range(count), [5] * count, headers=[[("a", b"1")]] * count)
        try:
            return [
                one for made in run.run(batch, attempts) for one in converter.write_many(made.values, made.value_schema)
            ]
        except RecordError as error:
            return str(error)

    alone = [copied([one], STRICT) for one in column]
    for one, made in zip(column, alone, strict=True):
        wanted = copied([one], _Eager())
        # A record that is filtered undecoded is no error, whatever its bytes (docs/reference/differences.md).
        assert made == wanted or (made == [] and isinstance(wanted, str))
    together = copied(column, STRICT)
    assert isinstance(together, str) == any(isinstance(made, str) for made in alone)
    if not isinstance(together, str):
        assert together == [value for made in alone for value in made]
