"""Choice of the tables of a publication, and whether partitioned tables are sent under their own names.

Owns the choice. Pure: the relations are passed in. Applying it: `publication`.

A publication sends rows of a partitioned table under the names of its partitions, or, with its option
`publish_via_partition_root`, under the name of the published table. So the config decides:

    table.include.list names      is captured as     by
    a partitioned table alone     that table         the option
    partitions alone              the partitions     the partitions; the table, where it names them all
    both, or all tables           the partitions     the table (publish.via.partition.root=true: as that table)

A published partitioned table includes its later partitions.

Invariant: a captured table is sent under a name that the config captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

PARTITIONED = "p"

Chosen = Callable[[str, str], bool]
"""Function that returns whether the config captures a table of this schema and name."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A table of the catalog."""

    oid: int
    schema: str
    name: str
    kind: str
    """`relkind`: `r` or `p`."""
    parent: int | None
    """Oid of the table of which it is a partition."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(slots=True)
class Wanted:
    """The intended content of a publication."""

    tables: list[Relation] = field(default_factory=list[Relation])
    roots: list[Relation] = field(default_factory=list[Relation])
    """Partitioned tables to be sent under their own names, which requires `publish_via_partition_root`."""
    wholes: list[tuple[Relation, list[Relation]]] = field(default_factory=list[tuple[Relation, list[Relation]]])
    """Partitioned tables whose partitions are all captured, with the partitions."""

    def members(self, *, via_root: bool) -> list[Relation]:
        """Return the tables to publish, given the publication's option."""
        parts = (leaves if via_root else [whole] for whole, leaves in self.wholes)
        return [*self.tables, *self.roots, *(one for some in parts for one in some)]


class Trees:
    """The relations of a database, with their partitions."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        self._relations = {one.oid: one for one in relations}
        self._children: dict[int, list[Relation]] = {}
        for one in self._relations.values():
            if one.parent is not None:
                self._children.setdefault(one.parent, []).append(one)

    def wanted(self, chosen: Chosen, *, via_root: bool) -> Wanted:
        """Return the intended content of a publication. `via_root`: if a table
        and its partitions are captured, send it under the table's name.
        """
        found = Wanted()
        for one in self._relations.values():
            if one.parent is None or one.parent not in self._relations:
                self._visit(one, chosen, found, via_root=via_root)
        return found

    def leaves(self, of: Relation) -> Iterator[Relation]:
        """Yield the partitions with rows at all levels below."""
        for child in self._children.get(of.oid, ()):
            if child.kind == PARTITIONED:
                yield from self.leaves(child)
            else:
                yield child

    def ancestors(self, of: Relation) -> Iterator[Relation]:
        """Yield the tables of which it is a partition, from the nearest up."""
        while of.parent is not None and (parent := self._relations.get(of.parent)) is not None:
            yield parent
            of = parent

    def _visit(self, one: Relation, chosen: Chosen, found: Wanted, *, via_root: bool) -> None:
        is_chosen = chosen(one.schema, one.name)
        if one.kind != PARTITIONED:
            if is_chosen:
                found.tables.append(one)
            return
        leaves = list(self.leaves(one))
        names = _names(one, leaves)
        below = [chosen(*name) for name in names]
        if is_chosen and (via_root or not any(below)):
            found.roots.append(one)
        elif all(below):
            found.wholes.append((one, leaves))
        else:
            for child in self._children.get(one.oid, ()):
                self._visit(child, chosen, found, via_root=via_root)


def _names(of: Relation, leaves: Sequence[Relation]) -> list[tuple[str, str]]:
    """Return the partitions' names; if there are none, a likely name of one."""
    return [(leaf.schema, leaf.name) for leaf in leaves] or [(of.schema, f"{of.name}_1")]
