"""What the counts of the story of members are shown as."""

from __future__ import annotations

from bench.scale.members import Row, table


def test_the_table_shows_every_change() -> None:
    text = table(100, [Row("a worker is killed", 50, 0, 0, 0, 7.84)])
    assert "| a worker is killed | 50 | 0 | 0 | 0 | 7.8 s |" in text
