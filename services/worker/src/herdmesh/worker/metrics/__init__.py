"""The worker's metrics: of each task and connector it holds, and of itself, on its Prometheus page and by OTLP.

`names` says which there are, by Connect's names where Connect has them, and what each is read from; `tasks` adds up a
task's runs; `collector` sees what happens to the worker and makes the page. `docs/reference/metrics.md` is made of
`names`.
"""
