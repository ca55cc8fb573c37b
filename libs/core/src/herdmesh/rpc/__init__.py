"""The common gRPC code of every Herdmesh service: serving, calling, errors, settings, shutdown.

Modules: `errors` (the tree), `status` (the table of gRPC statuses), `server`, `client`, `settings`, `process`,
`telemetry`, `tracing`, `enums`, `lean` (imported before all else), `imports`, and the small wire helpers `revisions`
and `properties`. Import the modules: this package re-exports nothing, so that pure state can import
`herdmesh.rpc.errors` without loading gRPC.
"""
