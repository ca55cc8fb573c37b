"""Connectors that use a Spark session of their task: `SparkSink`, `SparkJdbcSource` and `SparkStreamSource`.

Owns the three connectors (`sink`, `jdbc_source`, `stream_source`) and the settings of their sessions
(`session_settings`). The session itself: `herdmesh.sdk.spark`. No other family imports it.
"""
