"""JsonConverter: values in JSON, with or without the schema envelope; fast and reference paths give equal bytes.

`converter` owns the settings and the envelope of `schemas.enable`. `schemas` converts schemas; `decoders` and
`encoders` are the fast paths for values, `nodes` and `texts` the reference paths.
"""
