"""The way from `herd` to a mesh: which one, at which address, and the client of its herders.

Owns contexts, the check of addresses, the search for the leader, and bounded parallel calls. Invariant: a change
reaches only a mesh that the user named (`contexts`).
"""
