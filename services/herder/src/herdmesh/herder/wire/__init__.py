"""Wire mapping of the herder: messages to the state's values and back (`values`, `session`, `stores`, `views`).

Owns the mapping and nothing else. Invariant: what the state has a value for, it gets; what it has none for is not lost
where a message is handed on (progress and validation travel unopened).
"""
