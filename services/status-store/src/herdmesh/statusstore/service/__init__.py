"""The status store on the wire: `reads` and `writes` are the two servicers, `wire` converts.

Owns checks of requests and conversion. Decides nothing: rules are in `state`, waiting is in `effects` and the topic
store.
"""
