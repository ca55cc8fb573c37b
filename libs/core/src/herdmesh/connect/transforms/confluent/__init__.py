"""Confluent's transformations, by what its documentation says of them: their classes are not published openly.

Owns the classes, each with its module, and their definitions.
"""
