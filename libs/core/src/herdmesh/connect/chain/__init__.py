"""The record chain of a task: converters, predicates and transformations compiled into one loop over a batch.

Owns building a chain from a config, compiling it, running it over batches, and isolating the records that fail. The
caller decides about a failed record (retry, skip, dead letter): `herdmesh.engine` implements the policy.

Invariant: the compiled loop and the one-by-one path give equal results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from herdmesh.connect.exports import lazy_exports

if TYPE_CHECKING:
    from herdmesh.connect.chain.batch_assembly import checked_times as checked_times
    from herdmesh.connect.chain.chain_config import converters as converters
    from herdmesh.connect.chain.chain_config import transformations as transformations
    from herdmesh.connect.chain.chain_config import violations as violations
    from herdmesh.connect.chain.compiled_loop import Loop as Loop
    from herdmesh.connect.chain.compiled_loop import Step as Step
    from herdmesh.connect.chain.custom_transforms import AuthoredPredicate as AuthoredPredicate
    from herdmesh.connect.chain.custom_transforms import AuthoredTransformation as AuthoredTransformation
    from herdmesh.connect.chain.record_chain import SinkChain as SinkChain
    from herdmesh.connect.chain.record_chain import SourceChain as SourceChain
    from herdmesh.connect.chain.record_failure_policy import RecordSkipped as RecordSkipped
    from herdmesh.connect.chain.record_failure_policy import record_error as record_error
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "batch_assembly": ("checked_times",),
            "chain_config": (
                "converters",
                "transformations",
                "violations",
            ),
            "compiled_loop": (
                "Loop",
                "Step",
            ),
            "custom_transforms": (
                "AuthoredPredicate",
                "AuthoredTransformation",
            ),
            "record_chain": (
                "SinkChain",
                "SourceChain",
            ),
            "record_failure_policy": (
                "RecordSkipped",
                "record_error",
            ),
        },
    )
