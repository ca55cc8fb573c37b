"""`herd example`: small guided examples that run on the user's cluster.

An example is a page, `NAME.md` in this folder: text, commands (`sh`), and the output of the command before (`text`, in
which `...` stands for anything). Owns the pages, their reading, their run, and what they need besides the cluster: a
PostgreSQL server, an HTTP receiver. `website.example_pages` copies the pages to docs/tutorials/examples.

Invariant: a run prints and does what the page shows, or fails at the step that differs.
"""
