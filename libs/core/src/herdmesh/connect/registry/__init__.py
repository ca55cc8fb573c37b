"""Schemas kept in a Confluent-compatible registry: its REST API, subject names, wire format, and what is remembered.

`client` speaks HTTP, `schemas` remembers what it said and decides what to register, `subjects` names subjects, `wire`
frames bytes, `settings` are the options. What a schema means belongs to the converter of its format.
"""
