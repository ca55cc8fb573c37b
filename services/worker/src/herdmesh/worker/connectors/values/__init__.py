"""How values leave: what all sinks share that write records to files, HTTP receivers or Spark.

Owns one conversion each: to JSON (`payloads`), to lines of text (`lines`), to CSV cells (`cells`), and to columns whose
types are found in the data (`columns`). Columns under a schema are `herdmesh.sdk.arrow`'s. `refusals` has one record
that cannot be converted refused, and not its batch. docs/reference/values.md shows what each type becomes.

Invariant: a value is never changed on its way: it is written as it is, or its record is refused.
"""
