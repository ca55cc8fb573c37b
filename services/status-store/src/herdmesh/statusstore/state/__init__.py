"""The pure half of the status store: what the topic means (`statuses`), what may be written (`writes`), who is alive
(`leases`). No clock, no I/O, no asyncio: time and records come in as arguments."""
