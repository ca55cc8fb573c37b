"""Rules on the value of one key, for `setting` and `ConfigKey`. Owns nothing: they are Connect's, with its error
texts."""

from __future__ import annotations

from herdmesh.connect.config import (
    all_of,
    at_least,
    distinct_values,
    non_empty_list,
    non_empty_string,
    one_of,
    one_of_ignoring_case,
    optional_at_least,
    optional_between,
    optional_one_of,
    regex,
)

__all__ = [
    "all_of",
    "at_least",
    "distinct_values",
    "non_empty_list",
    "non_empty_string",
    "one_of",
    "one_of_ignoring_case",
    "optional_at_least",
    "optional_between",
    "optional_one_of",
    "regex",
]
