"""Config definitions: typed keys with validators and Connect's error texts, and the safe display of config values.

Owns `ConfigDef`, value parsing, plugin versions, fixes for misspelt names and unknown classes, and the redaction of
secrets. Defines no key of a connector: those are in `validation`, `clients`, `converters` and `transforms`.

Invariant: imports `java` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.config.class_advice import TWINS as TWINS
    from herdmesh.connect.config.class_advice import WRITE_YOUR_OWN as WRITE_YOUR_OWN
    from herdmesh.connect.config.class_advice import advice as advice
    from herdmesh.connect.config.class_advice import connector_advice as connector_advice
    from herdmesh.connect.config.config_def import REQUIRED as REQUIRED
    from herdmesh.connect.config.config_def import ConfigDef as ConfigDef
    from herdmesh.connect.config.config_def import ConfigKey as ConfigKey
    from herdmesh.connect.config.config_def import ConfigValue as ConfigValue
    from herdmesh.connect.config.config_def import FieldViolation as FieldViolation
    from herdmesh.connect.config.config_def import Importance as Importance
    from herdmesh.connect.config.config_def import KnownClasses as KnownClasses
    from herdmesh.connect.config.config_def import RawConfig as RawConfig
    from herdmesh.connect.config.config_def import Recommender as Recommender
    from herdmesh.connect.config.config_def import Type as Type
    from herdmesh.connect.config.config_def import Validator as Validator
    from herdmesh.connect.config.config_def import parse_value as parse_value
    from herdmesh.connect.config.config_def import text_of as text_of
    from herdmesh.connect.config.connection_urls import database_place as database_place
    from herdmesh.connect.config.connection_urls import http_place as http_place
    from herdmesh.connect.config.connection_urls import kind_of as kind_of
    from herdmesh.connect.config.connection_urls import without_user as without_user
    from herdmesh.connect.config.delivery_guarantee import AT_LEAST_ONCE as AT_LEAST_ONCE
    from herdmesh.connect.config.delivery_guarantee import EXACTLY_ONCE as EXACTLY_ONCE
    from herdmesh.connect.config.delivery_guarantee import GUARANTEE as GUARANTEE
    from herdmesh.connect.config.delivery_guarantee import contradictions as contradictions
    from herdmesh.connect.config.delivery_guarantee import is_at_least_once as is_at_least_once
    from herdmesh.connect.config.entry_points import LeftOut as LeftOut
    from herdmesh.connect.config.entry_points import loaded_entry as loaded_entry
    from herdmesh.connect.config.escaping import escaped as escaped
    from herdmesh.connect.config.escaping import escaped_within as escaped_within
    from herdmesh.connect.config.escaping import is_encodable as is_encodable
    from herdmesh.connect.config.isolation import APPLICATION as APPLICATION
    from herdmesh.connect.config.isolation import ISOLATION as ISOLATION
    from herdmesh.connect.config.isolation import PROCESS as PROCESS
    from herdmesh.connect.config.isolation import SHARED as SHARED
    from herdmesh.connect.config.isolation import isolation_of as isolation_of
    from herdmesh.connect.config.redaction import LENGTH_MIN as LENGTH_MIN
    from herdmesh.connect.config.redaction import forget_secrets as forget_secrets
    from herdmesh.connect.config.redaction import hide_in_output as hide_in_output
    from herdmesh.connect.config.redaction import keep_secret as keep_secret
    from herdmesh.connect.config.redaction import redacted as redacted
    from herdmesh.connect.config.redaction import redacted_value as redacted_value
    from herdmesh.connect.config.redaction import secrets_kept_for_this_answer as secrets_kept_for_this_answer
    from herdmesh.connect.config.redaction import secrets_of_one_answer as secrets_of_one_answer
    from herdmesh.connect.config.redaction import url_passwords as url_passwords
    from herdmesh.connect.config.redaction import without_url_passwords as without_url_passwords
    from herdmesh.connect.config.secret_values import is_secret as is_secret
    from herdmesh.connect.config.sizes import bytes_of as bytes_of
    from herdmesh.connect.config.sizes import text_of_bytes as text_of_bytes
    from herdmesh.connect.config.spelling import closest as closest
    from herdmesh.connect.config.validators import all_of as all_of
    from herdmesh.connect.config.validators import at_least as at_least
    from herdmesh.connect.config.validators import cast_spec as cast_spec
    from herdmesh.connect.config.validators import check_pairs as check_pairs
    from herdmesh.connect.config.validators import distinct_values as distinct_values
    from herdmesh.connect.config.validators import non_empty_list as non_empty_list
    from herdmesh.connect.config.validators import non_empty_string as non_empty_string
    from herdmesh.connect.config.validators import (
        non_empty_without_control_characters as non_empty_without_control_characters,
    )
    from herdmesh.connect.config.validators import non_null_string as non_null_string
    from herdmesh.connect.config.validators import one_of as one_of
    from herdmesh.connect.config.validators import one_of_ignoring_case as one_of_ignoring_case
    from herdmesh.connect.config.validators import optional_at_least as optional_at_least
    from herdmesh.connect.config.validators import optional_between as optional_between
    from herdmesh.connect.config.validators import optional_one_of as optional_one_of
    from herdmesh.connect.config.validators import optional_size as optional_size
    from herdmesh.connect.config.validators import plugin_version as plugin_version
    from herdmesh.connect.config.validators import positive_or_broker_default as positive_or_broker_default
    from herdmesh.connect.config.validators import regex as regex
    from herdmesh.connect.config.validators import regexes as regexes
    from herdmesh.connect.config.validators import rename_pairs as rename_pairs
    from herdmesh.connect.config.validators import unique_aliases as unique_aliases
    from herdmesh.connect.config.versions import VersionRange as VersionRange
    from herdmesh.connect.config.versions import not_there as not_there
    from herdmesh.connect.config.versions import rank as rank
    from herdmesh.connect.config.versions import version_range as version_range
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "class_advice": (
                "TWINS",
                "WRITE_YOUR_OWN",
                "advice",
                "connector_advice",
            ),
            "config_def": (
                "ConfigDef",
                "ConfigKey",
                "ConfigValue",
                "FieldViolation",
                "Importance",
                "KnownClasses",
                "REQUIRED",
                "RawConfig",
                "Recommender",
                "Type",
                "Validator",
                "parse_value",
                "text_of",
            ),
            "connection_urls": (
                "database_place",
                "http_place",
                "kind_of",
                "without_user",
            ),
            "delivery_guarantee": (
                "AT_LEAST_ONCE",
                "EXACTLY_ONCE",
                "GUARANTEE",
                "contradictions",
                "is_at_least_once",
            ),
            "entry_points": (
                "LeftOut",
                "loaded_entry",
            ),
            "escaping": (
                "escaped",
                "escaped_within",
                "is_encodable",
            ),
            "isolation": (
                "APPLICATION",
                "ISOLATION",
                "PROCESS",
                "SHARED",
                "isolation_of",
            ),
            "redaction": (
                "LENGTH_MIN",
                "forget_secrets",
                "hide_in_output",
                "keep_secret",
                "redacted",
                "redacted_value",
                "secrets_kept_for_this_answer",
                "secrets_of_one_answer",
                "url_passwords",
                "without_url_passwords",
            ),
            "secret_values": ("is_secret",),
            "sizes": (
                "bytes_of",
                "text_of_bytes",
            ),
            "spelling": ("closest",),
            "validators": (
                "all_of",
                "at_least",
                "cast_spec",
                "check_pairs",
                "distinct_values",
                "non_empty_list",
                "non_empty_string",
                "non_empty_without_control_characters",
                "non_null_string",
                "one_of",
                "one_of_ignoring_case",
                "optional_at_least",
                "optional_between",
                "optional_one_of",
                "optional_size",
                "plugin_version",
                "positive_or_broker_default",
                "regex",
                "regexes",
                "rename_pairs",
                "unique_aliases",
            ),
            "versions": (
                "VersionRange",
                "not_there",
                "rank",
                "version_range",
            ),
        },
    )
