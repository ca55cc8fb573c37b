"""The common gRPC code of every Herdmesh service: serving, calling, errors, settings, shutdown.

Modules: `errors` (the tree), `status` (the table of gRPC statuses), `server`, `client`, `settings`, `process`,
`telemetry`, `tracing`, `enums`, `import_tweaks` (imported before all else), `gc_at_import`, and the small wire helpers
`revisions` and `properties`. Import the modules: this package re-exports nothing, so that pure state can import
`herdmesh.rpc.errors` without loading gRPC.
"""
