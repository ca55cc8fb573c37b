"""Connect's standalone mode: stores, herder and worker in one process, for `herd run`.

`files` makes connectors of Java's properties files; `worker_properties` maps a worker's
to our settings; `process` runs everything. The one place that imports services from outside of them, and only
`herd run` imports it (`.importlinter`).
"""
