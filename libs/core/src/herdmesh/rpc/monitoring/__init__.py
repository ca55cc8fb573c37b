"""The monitoring of a service: metrics, traces, the identity in both, and the HTTP pages that show them.

Owns OpenTelemetry's set-up of a process, the names of Connect's metrics on a Prometheus page, and `/metrics`,
`/healthz` and `/readyz`. The metrics of a service are its own (`metrics.py` there).
"""
