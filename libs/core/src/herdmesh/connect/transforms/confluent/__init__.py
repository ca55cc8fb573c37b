"""Confluent's transformations, built from its documentation: the source of their classes is not open.

Owns the classes, one module each, and their definitions.
"""
