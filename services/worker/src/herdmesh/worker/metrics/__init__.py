"""The worker's metrics: of each held task and connector, and of the worker itself, on its Prometheus page and by OTLP.

`names` defines the metrics, by Connect's names where Connect has them, and the source of each value; `tasks` adds up a
task's runs; `collector` observes the worker's events and builds the page. `docs/reference/metrics.md` is generated from
`names`.
"""
