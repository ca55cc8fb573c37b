"""The development stack: a real Kafka broker, the jars it needs, and the services, on one machine.

Owns processes, ports and files under one data folder. Owns nothing of the mesh itself: services run here exactly as
anywhere else. Used by `herd up`, the demo, the tests and the benchmark. Modules are imported by name
(`devstack.broker`, `devstack.jars`), since each is also a command.
"""
