"""The pure half of the status store: the meaning of the topic (`statuses`), the rules of writes (`writes`), the live
workers (`leases`). No clock, no I/O, no asyncio: time and records come in as arguments.
"""
