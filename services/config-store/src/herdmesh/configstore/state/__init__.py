"""The config store's pure state: the fold of the topic, the plans of its writes, the election of the leading herder.

Owns no I/O, no clock and no randomness: offsets and timestamps come with records, the time with each event, fresh ids
with each request. `config` is where reading starts. `writes` plans the transaction of a request, `audit` its record of
who changed what; `history` is the index of these records, `manifest` decides between ours and Connect's records.
"""
