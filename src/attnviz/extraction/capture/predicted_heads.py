"""Which heads of a run will be kept, said before anything of it is copied.

A layer's number is known for certain when all layers have run: it is read from the modules' names,
and where a module runs several times, counted. Here it is foretold; where that fails,
`attnviz.extraction.capture.kept_layers` notices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnviz.extraction.modules import layer_numbers
from attnviz.extraction.options import Keeping

__all__ = ["Foresight"]


class Foresight:
    """Foretells the number of a run's layer, and with it the heads that are kept.

    Parameters
    ----------
    keeping : Keeping
        What is kept.
    stacks : mapping of str to sequence of str
        For each stack the paths of all its modules that attend, whether they run or not, so that
        the numbers are read from the same place of every path.
    """

    def __init__(self, keeping: Keeping, stacks: Mapping[str, Sequence[str]]) -> None:
        self._keeping = keeping
        self._numbers: dict[tuple[str, str], int] = {}
        for stack, names in stacks.items():
            numbers = layer_numbers(names)
            if numbers is not None:
                places = [(stack, name) for name in names]
                self._numbers |= dict(zip(places, numbers, strict=True))

    def heads(
        self, stack: str, name: str, before: Sequence[str], num_heads: int
    ) -> tuple[int, ...]:
        """Heads of a run that are kept.

        Parameters
        ----------
        stack : str
            The stack of its module.
        name : str
            The module's path.
        before : sequence of str
            The modules of the stack that ran before, over as many tokens, in order.
        num_heads : int
            How many heads it has.

        Returns
        -------
        tuple of int
            Ascending. Where its number cannot be told, those of every number that it may have.

        Examples
        --------
        >>> names = ["layers.3.attention", "layers.7.attention"]
        >>> foresight = Foresight(Keeping(layers=(7,)), {"self": names})
        >>> [foresight.heads("self", name, names[:place], 2) for place, name in enumerate(names)]
        [(), (0, 1)]
        """
        if self._keeping.everything:
            return tuple(range(num_heads))
        wanted: set[int] = set()
        for number in self._possible(stack, name, before):
            wanted.update(self._keeping.heads_of(number, num_heads))
        return tuple(sorted(wanted))

    def _possible(self, stack: str, name: str, before: Sequence[str]) -> set[int]:
        if len({*before, name}) <= len(before):
            # A module that runs again (ALBERT): layers are counted.
            return {len(before)}
        if (stack, name) in self._numbers:
            return {self._numbers[stack, name]}
        return {len(before), *(int(part) for part in name.split(".") if part.isdigit())}
