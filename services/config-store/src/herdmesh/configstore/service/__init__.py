"""The config store on the wire: three servicers, their conversions, and health by role.

Owns no decision: a servicer checks that a request is well formed, converts it, calls, and converts the result.
"""
