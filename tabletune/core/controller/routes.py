"""Which draft length may follow which, at every batch size.

A table whose neighbouring ranges avoid a forbidden transition still crosses it when the batch
jumps over a range between two steps. So the length wanted is reached over stepping stones: the
shortest way of allowed transitions, one a step, within the envelope where there is such a way.
"""

from collections.abc import Callable, Collection

# step[last][wanted] = the length of the next step.
_Hops = dict[int, dict[int, int]]


class Routes:
    """The way from the last length to the wanted one, for batch sizes 1 … max_num_seqs.

    lengths: the lengths the engine can run. forbidden: ordered pairs (from, to) that must
    never follow each other. envelope(batch_size, draft_length): whether the pair may be
    used; None for all. Where no allowed way exists the last length stays.
    """

    def __init__(
        self,
        lengths: Collection[int],
        forbidden: Collection[tuple[int, int]],
        max_num_seqs: int,
        envelope: Callable[[int, int], bool] | None = None,
    ) -> None:
        self.lengths = tuple(sorted(lengths))
        self.forbidden = frozenset((a, b) for a, b in forbidden if a != b)
        every = frozenset(self.lengths)
        known: dict[frozenset[int], _Hops] = {}
        self._usable: list[frozenset[int]] = [every]
        self._hops: list[_Hops] = [{}]
        for batch_size in range(1, max_num_seqs + 1):
            usable = every
            if envelope is not None:
                usable = frozenset(k for k in self.lengths if envelope(batch_size, k))
            if usable not in known:
                known[usable] = self._hops_within(usable)
            self._usable.append(usable)
            self._hops.append(known[usable])

    def allows(self, batch_size: int, draft_length: int) -> bool:
        """Whether the pair lies in the envelope."""
        return draft_length in self._usable[batch_size]

    def next_length(self, batch_size: int, last: int | None, wanted: int) -> int:
        """The length of the step that begins now."""
        if last is None or last == wanted:
            return wanted
        hops = self._hops[batch_size].get(last)
        # A length above all that are forbidden or usable (pinned by hand before) may be left.
        return wanted if hops is None else hops[wanted]

    def _hops_within(self, usable: frozenset[int]) -> _Hops:
        hops: _Hops = {}
        leaving = {*self.lengths, *(a for a, _ in self.forbidden)}
        for last in sorted(leaving):
            inside = self._first_steps(last, usable)
            outside = self._first_steps(last, frozenset(self.lengths))
            hops[last] = {
                wanted: last if wanted == last else inside.get(wanted, outside.get(wanted, last))
                for wanted in self.lengths
            }
        return hops

    def _first_steps(self, last: int, stones: frozenset[int]) -> dict[int, int]:
        """For each length that can be reached over the stones, the first step to it."""
        first = {k: k for k in sorted(stones) if k != last and (last, k) not in self.forbidden}
        frontier = list(first)
        while frontier:
            stone = frontier.pop(0)
            for k in sorted(stones - first.keys() - {last}):
                if (stone, k) not in self.forbidden:
                    first[k] = first[stone]
                    frontier.append(k)
        return first
