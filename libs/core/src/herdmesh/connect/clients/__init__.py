"""Kafka client settings: Java's consumer, producer and admin options in the terms of librdkafka.

Owns logins and encryption, the override policy for connectors, and the list of settings without effect here. Creates no
client (`herdmesh.kafka` and `herdmesh.engine` do).

Invariant: a setting is translated, refused with key and fix, or named in a warning; none is dropped silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.clients.client_overrides import ALLOW_ALL as ALLOW_ALL
    from herdmesh.connect.clients.client_overrides import CLIENTS as CLIENTS
    from herdmesh.connect.clients.client_overrides import OVERRIDE_ALLOWLIST as OVERRIDE_ALLOWLIST
    from herdmesh.connect.clients.client_overrides import OVERRIDE_POLICY as OVERRIDE_POLICY
    from herdmesh.connect.clients.client_overrides import OverridePolicy as OverridePolicy
    from herdmesh.connect.clients.client_overrides import check_overrides as check_overrides
    from herdmesh.connect.clients.client_overrides import client_keys as client_keys
    from herdmesh.connect.clients.client_overrides import clients_of as clients_of
    from herdmesh.connect.clients.client_overrides import policy_of as policy_of
    from herdmesh.connect.clients.client_overrides import validate_overrides as validate_overrides
    from herdmesh.connect.clients.client_security import PROTOCOL as PROTOCOL
    from herdmesh.connect.clients.client_security import client_access as client_access
    from herdmesh.connect.clients.client_security import is_access as is_access
    from herdmesh.connect.clients.client_security import override_violations as override_violations
    from herdmesh.connect.clients.jaas import parse_jaas as parse_jaas
    from herdmesh.connect.clients.librdkafka_settings import ClientSettings as ClientSettings
    from herdmesh.connect.clients.librdkafka_settings import client_settings as client_settings
    from herdmesh.connect.clients.librdkafka_settings import override_warnings as override_warnings
    from herdmesh.connect.clients.librdkafka_settings import worker_warnings as worker_warnings
    from herdmesh.connect.clients.msk_iam import MECHANISM as MECHANISM
    from herdmesh.connect.clients.msk_iam import SIGNER as SIGNER
    from herdmesh.connect.clients.msk_iam import MskLogin as MskLogin
    from herdmesh.connect.clients.offset_reset import AUTO_OFFSET_RESET as AUTO_OFFSET_RESET
    from herdmesh.connect.clients.offset_reset import OffsetReset as OffsetReset
    from herdmesh.connect.clients.offset_reset import Start as Start
    from herdmesh.connect.clients.offset_reset import read_offset_reset as read_offset_reset
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "client_overrides": (
                "ALLOW_ALL",
                "CLIENTS",
                "OVERRIDE_ALLOWLIST",
                "OVERRIDE_POLICY",
                "OverridePolicy",
                "check_overrides",
                "client_keys",
                "clients_of",
                "policy_of",
                "validate_overrides",
            ),
            "client_security": (
                "PROTOCOL",
                "client_access",
                "is_access",
                "override_violations",
            ),
            "jaas": ("parse_jaas",),
            "librdkafka_settings": (
                "ClientSettings",
                "client_settings",
                "override_warnings",
                "worker_warnings",
            ),
            "msk_iam": (
                "MECHANISM",
                "MskLogin",
                "SIGNER",
            ),
            "offset_reset": (
                "AUTO_OFFSET_RESET",
                "OffsetReset",
                "Start",
                "read_offset_reset",
            ),
        },
    )
