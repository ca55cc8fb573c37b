"""Between the wire's messages and the state's values, both ways: `values` (shared words), `session`, `stores`, `views`.

Owns the mapping and nothing else. Invariant: what the state knows of, it gets; what it does not know of is not lost
where a message is handed on (progress, validation travel unopened).
"""
