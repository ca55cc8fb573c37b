"""Wire mapping of the herder: messages to the state's values and back (`values`, `session`, `stores`, `views`).

Owns the mapping and nothing else. Invariant: the state gets every field for which it has a value; the other fields are
not lost where a message is passed on (progress and validation travel unopened).
"""
