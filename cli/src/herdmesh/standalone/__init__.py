"""Connect's standalone mode: stores, herder and worker in one process, for `herd run`.

`files` reads connectors from Java's properties files; `worker_properties` maps a worker's properties to our settings;
`process` runs everything. It is the one package outside the services that imports them, and only `herd run` imports it
(`.importlinter`).
"""
