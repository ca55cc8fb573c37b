"""Everything that leaves the herder: the two stores' clients. No Kafka client in it (design section 2).

`campaign` stands for leadership, `config_store` and `status_store` watch, `writes` carries out the state's writes.
"""
