"""Delivery of records to Kafka: at least once, or exactly once in transactions.

Owns the production of a source's records and their delivery reports. Knows no connector.
Invariant: a record counts as delivered only after its broker acknowledged it.
"""

from __future__ import annotations

from herdmesh.engine.delivery.delivery_reports import (
    DeliveryFailures,
    DeliveryReports,
    Report,
)
from herdmesh.engine.delivery.source_delivery import (
    SourceDelivery,
    outlet,
)

__all__ = [
    "DeliveryFailures",
    "DeliveryReports",
    "Report",
    "SourceDelivery",
    "outlet",
]
