"""Tests of the table of sample values against its own descriptions."""

from __future__ import annotations

import pytest

from herdmesh.connect.converters.json.converter import JsonConverter
from herdmesh.connect.errors import DataError
from herdmesh.connect.model.checks import check_value
from tests.support.sample_values import ALL, UNFIT, WITH_SCHEMA, Sample


def test_names_are_unique() -> None:
    names = [sample.name for sample in ALL]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("sample", WITH_SCHEMA, ids=str)
def test_values_fit_their_schemas(sample: Sample) -> None:
    if sample.value is not None or sample.schema is None or sample.schema.default is None:
        check_value(sample.schema, sample.value)


@pytest.mark.parametrize("sample", UNFIT, ids=str)
def test_javas_converter_refuses_values_that_do_not_fit(sample: Sample) -> None:
    converter = JsonConverter()
    converter.configure({"schemas.enable": "false"}, "value")
    with pytest.raises(DataError):
        converter.write(sample.value, sample.schema)
