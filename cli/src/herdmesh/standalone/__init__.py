"""Connect's standalone mode: stores, herder and worker in one process, for `herd run`.

`java_properties` reads Java's properties files; `files` makes connectors of them; `worker_properties` maps a worker's
to our settings; `process` runs everything. The one place that imports services from outside of them, and only
`herd run` imports it (`.importlinter`).
"""
