"""JSONPath conditions in Jayway's dialect, for Confluent's Filter: parser (`grammar`), comparisons (`comparing`), and
the evaluation on values (`condition`).

No Python library fits: they follow RFC 9535, in which the same text has another meaning. There `$[?@.a > 1]` tests each
member of an object, in Jayway's dialect the object itself; and '12' equals 12 here.
"""
