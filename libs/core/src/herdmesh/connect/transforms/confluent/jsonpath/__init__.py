"""Conditions in Jayway's JSONPath, as Confluent's Filter takes them: `grammar` reads them, `comparing` has what Jayway
calls equal, `condition` asks values.

Owns nothing but the folder. A library for Python follows RFC 9535, which means other things by the same text: there
`$[?@.a > 1]` asks each member of an object, here the object itself, and '12' equals 12 here.
"""
