"""What every Herdmesh service does with gRPC: serve, call, fail and stop in one way.

`errors` (the tree), `status` (the one table), `server`, `client`, `settings`, `process`, `telemetry`, `tracing`, `lean`
(imported before all else), `imports`, and the small wire helpers `revisions` and `properties`. Import the modules: this
package re-exports nothing, so that pure state can import `herdmesh.rpc.errors` without pulling in gRPC.
"""
