"""The display of `herd`: everything that a command prints.

Owns tables, documents (`-o json|yaml|csv|name|jsonpath=`), live pictures, diagnoses and hidden secrets. Requests
nothing from a service: values in, text out (`board` and `following` read a watch that the command opened).

Start at `output`, through which every command prints, and `views`, which turns wire messages into plain values.
"""
