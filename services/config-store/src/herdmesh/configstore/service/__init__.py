"""The config store on the wire: three servicers, their translation, and health by role.

Owns no decision: a servicer checks that a request is well formed, translates, calls, translates back.
"""
