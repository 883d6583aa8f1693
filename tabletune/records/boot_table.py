"""The table that an engine with the plugin boots with: the version's, naming every length.

An engine that follows promotions or adapts may later use any length of its capture plan, and
has graphs only for those that its boot table names (tabletune/core/boot_table.py).
"""

from dataclasses import dataclass

from tabletune.core.boot_table import Loss, Placement, name_all_lengths
from tabletune.records.table import Table, TableVersion, table_from_dense


@dataclass(frozen=True)
class BootTable:
    """A boot table, what it changes in the version's table, and what it could not name.

    Attributes:
        table: names every length that the version's plan and envelope allow, without `notes`.
        placements: the single batch sizes that differ from the version's table.
        left_out: lengths of the plan that the table does not name; no table may use them in an
            engine that booted with this one.
    """

    table: Table
    placements: tuple[Placement, ...]
    left_out: tuple[int, ...]

    def words(self) -> tuple[str, ...]:
        """What a reader of the serve command should know, one statement an entry."""
        named = [
            f"boot table: draft length {p.draft_length} at batch size {p.batch_size}, so that "
            "the engine has it ready"
            for p in self.placements
        ]
        missing = [
            f"boot table: draft length {length} is left out (no batch size may use it)"
            for length in self.left_out
        ]
        return (*named, *missing)


def boot_table(version: TableVersion, loss: Loss | None = None) -> BootTable:
    """The version's table with every other length of its plan at one batch size of its own.

    Each stands where it loses least, inside the envelope, and breaks no forbidden transition.

    Args:
        loss: (batch size, draft length) → share of predicted goodput lost there, see
            `predicted_losses`. Without it the distance from the table's own length counts.
    """
    dense = version.table.dense()[1:]
    longest = version.plan.max_draft_length

    def allowed_loss(batch_size: int, draft_length: int) -> float | None:
        if not version.envelope.contains(batch_size, draft_length):
            return None
        if loss is not None:
            return loss(batch_size, draft_length)
        return abs(draft_length - dense[batch_size - 1]) / longest

    found = name_all_lengths(
        dense, version.plan.lengths, allowed_loss, version.envelope.forbidden_transitions
    )
    table = table_from_dense([0, *found.lengths], longest)
    return BootTable(table, found.placements, found.left_out)
