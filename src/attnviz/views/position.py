"""Position of a view: its stack, layer and heads, and in some views a pinned query and key.

A stack is the attention of one kind in all layers, such as "self" or "cross". A pinned query or key
is a token that the reader chose with a click.

The traits of the position can also be set to the text of a token, a negative number, one head, or
"all" heads. Such a value is replaced by non-negative numbers when the trait is set. Therefore a
trait can be linked to the same trait of another view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import numpy as np
import traitlets

from attnviz.analysis.heads import closed_heads
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack, sibling_stacks
from attnviz.utils.arguments import as_list, existing_number, resolve_negative, short_repr
from attnviz.utils.host import warn_caller
from attnviz.views.base import View
from attnviz.views.trait_types import Heads, ResolvedIndex, as_trait_errors

if TYPE_CHECKING:
    from attnviz.corpus.statistics import StackStatistics

# Strings in the trait `leave_out` of the head view that are not the text of a token.
_KINDS_OF_KEYS = ("special", "first")


def is_looked_up(name: str, value: Any) -> bool:
    """Whether the value of a trait must be replaced by non-negative numbers.

    Such values are the text of a token, "all" heads, a negative number, or a list with at least one
    of these values.

    >>> is_looked_up("token", "it"), is_looked_up("layer", -1), is_looked_up("layer", 3)
    (True, True, False)
    """
    if isinstance(value, str):
        if name == "leave_out":
            return value not in _KINDS_OF_KEYS
        return name in ("token", "key") or (name == "heads" and value == "all")
    if isinstance(value, list | tuple | range | np.ndarray):
        return any(is_looked_up(name, entry) for entry in value)
    return isinstance(value, Integral) and value < 0


class HeadsView(View):
    """Base class of views that show heads of a layer in a stack.

    Setting a stack, layer or head that does not exist raises an error. If a new stack does not have
    the current layer, the view shows the layer with the nearest number. If you set a layer that
    only another stack of a hybrid model has, such as the stack of its linear layers, the view shows
    this stack. Chosen heads that do not exist in a new layer are removed from `heads`.

    Attributes
    ----------
    stack : str
        Name of the stack that is shown, such as ``"self"`` or ``"cross"``.
    layer : int
        Number of the layer that is shown. Negative numbers count from the end: -1 is the last
        layer.
    heads : list of int
        Chosen heads of the layer, in the order in which they were chosen. An empty list means all
        heads together. You can also set one number, or ``"all"`` to choose every head separately.
    theme, controls
        See `attnviz.views.base.View`.
    """

    # The value that the view itself last set `heads` to, or None if the caller passed `heads`. If
    # `heads` now has another value, a user has chosen these heads, and the view keeps them.
    _default_heads: list[int] | None = None

    # While a new value of `layer` changes the stack, this is the new value. Otherwise it is None.
    _sought_layer: int | None = None

    stack = traitlets.Unicode().tag(sync=True, address="always")
    layer = ResolvedIndex().tag(sync=True, address="always")
    heads = Heads(traitlets.Int()).tag(sync=True, address="always")

    def __init__(self, **traits: Any) -> None:
        name = traits.get("stack", self._first_stack())
        stack = self._stack_named(name)
        layer = traits["layer"] if "layer" in traits else self._first_layer(stack)
        other = self._stack_with(layer, name)
        if other is not None and "stack" in traits:
            raise traitlets.TraitError(
                f"layer={layer!r} of stack={name!r} does not exist. Layer {layer} is in another "
                f"stack: use stack={other!r}"
            )
        traits["stack"] = name if other is None else other
        stack = self._stack_named(traits["stack"])
        traits["layer"] = resolve_negative(layer, stack.layers)
        # Set stack and layer first. They are needed to convert `heads="all"` to the heads of the
        # layer, and the text of a token to a position in the stack.
        position = {"stack": traits["stack"], "layer": traits["layer"]}
        super().__init__(**position | self._first_state(traits, stack))
        # When the layer changes, default heads are replaced by the default heads of the new layer.
        # Heads that the caller chose are kept if the new layer has them. Otherwise they are removed
        # with a warning.
        if "heads" not in traits:
            self._default_heads = list(self.heads)

    def _first_stack(self) -> str:
        """Return the name of the stack that is shown by default."""
        raise NotImplementedError

    def _largest_head(self, stacks: Collection[str]) -> tuple[str, int, int] | None:
        """Return stack, layer and head with the largest number in `stacks`, or None."""
        del stacks
        return None

    def _first_layer(self, stack: Any) -> int:
        """Return the number of the layer that is shown by default."""
        first: int = stack.layers[0]
        return first

    def _default_traits(self, stack: Any, layer: int) -> dict[str, Any]:
        """Return the default values of the traits whose defaults depend on stack and layer."""
        del layer, stack
        return {}

    def _first_state(self, values: dict[str, Any], stack: Any) -> dict[str, Any]:
        """Return the initial values of traits as a dict.

        The dict has all entries of `values`, which are the layer and the traits that the caller
        passed. If a trait of `_default_traits` is not in `values`, its default value is added.
        """
        return self._default_traits(stack, values["layer"]) | values

    def resolve_number(self, name: str, value: Any) -> Any:
        """Replace a negative value of the trait `layer` by the number of the layer.

        Return the values of other traits, and layers that do not exist, unchanged.
        """
        if not is_looked_up(name, value) or name != "layer":
            return value
        return resolve_negative(value, self._stack_named(self.stack).layers)

    def resolve_heads(self, value: Any) -> Any:
        """Convert a list of heads, one head or "all" to head numbers in the current layer.

        Raise TraitError for other strings. Return invalid numbers unchanged.
        """
        chosen = as_list(value)
        if isinstance(chosen, str) and chosen != "all":
            raise traitlets.TraitError(
                f'heads={short_repr(value)}: pass an integer, a list such as [0, 3], or "all"'
            )
        if not is_looked_up("heads", chosen):
            return chosen
        stack = self._stack_named(self.stack)
        layer = self._nearest_layer(stack)
        if isinstance(chosen, str):
            return list(range(stack.num_heads(layer)))
        return [resolve_negative(head, range(stack.num_heads(layer))) for head in chosen]

    @traitlets.validate("stack")
    def _validate_stack(self, proposal: Mapping[str, Any]) -> str:
        return self._stack_named(proposal["value"]).name

    @traitlets.validate("layer")
    def _validate_layer(self, proposal: Mapping[str, Any]) -> int:
        layer: int = proposal["value"]
        other = self._stack_with(layer, self.stack)
        if other is not None:
            # A change of the stack also sets `layer` (see `_fit_to_stack`). It must set the new
            # layer at once, because linked views would receive any layer that is set before it.
            self._sought_layer = layer
            try:
                self.stack = other
            finally:
                self._sought_layer = None
            return layer
        with as_trait_errors():
            return self._stack_named(self.stack).layer_number(layer)

    def _siblings(self) -> list[list[str]]:
        """Return groups of names of stacks that are different kinds of layers of one model."""
        return []

    def _stack_with(self, layer: Any, name: str) -> str | None:
        """Return the name of the first sibling of the stack `name` that has the layer `layer`.

        Return None if the stack itself has this layer, or if no sibling has it.
        """
        group = next((group for group in self._siblings() if name in group), [])
        having = [other for other in group if layer in self._stack_named(other).layers]
        return None if name in having or not having else having[0]

    @traitlets.validate("heads")
    def _validate_heads(self, proposal: Mapping[str, Any]) -> list[int]:
        heads = list(dict.fromkeys(proposal["value"]))
        stack = self._stack_named(self.stack)
        # If stack and heads are set together, `self.layer` may still be a layer of the old stack.
        # Therefore check against the layer of the new stack that the view will show.
        layer = self._nearest_layer(stack)
        count = stack.num_heads(layer)
        if not set(heads) <= set(range(count)):
            raise traitlets.TraitError(
                f"heads={short_repr(heads)}: layer {layer} of stack {self.stack!r} has heads 0 to "
                f"{count - 1}"
            )
        return heads

    @traitlets.observe("stack")
    def _fit_to_stack(self, change: Mapping[str, Any]) -> None:
        """Show the layer of the new stack with the nearest number, and adapt `heads` to it."""
        self.layer = self._nearest_layer(self._stack_named(change["new"]))
        self._clip_heads()

    @traitlets.observe("layer")
    def _fit_to_layer(self, change: Mapping[str, Any]) -> None:
        del change
        self._clip_heads()

    def _nearest_layer(self, stack: AttentionStack | StackStatistics) -> int:
        wanted = self.layer if self._sought_layer is None else self._sought_layer
        return min(stack.layers, key=lambda number: abs(number - wanted))

    def _clip_heads(self) -> None:
        """Adapt `heads` to the current layer.

        If `heads` is still the default of the view, replace it by the default of the layer.
        Otherwise remove heads that the layer does not have, with a warning.
        """
        stack = self._stack_named(self.stack)
        if self.heads == self._default_heads:
            self._default_heads = list(self._default_traits(stack, self.layer).get("heads", []))
            self.heads = self._default_heads
            return
        count = stack.num_heads(self.layer)
        remaining = [head for head in self.heads if head < count]
        if remaining != self.heads:
            warn_caller(
                f"layer {self.layer} has {count} heads: heads={self.heads!r} is reduced "
                f"to {remaining!r}"
            )
            self.heads = remaining

    def _stack_named(self, name: str) -> AttentionStack | StackStatistics:
        """Return the stack with this name. Raise TraitError if it does not exist."""
        raise NotImplementedError


class PositionedView(HeadsView):
    """Base class of views with a stack, layer and heads, and with a pinned query and key.

    Attributes
    ----------
    stack, layer, heads, theme, controls
        See `HeadsView`.
    token : int or None
        Position of the pinned query, or None if no query is pinned. You can also set the text of
        the token, such as ``"it"``, if it occurs only once (see `attnviz.Tokens.positions`).
        Negative numbers count from the end.
    key : int or None
        Position of the pinned key, or None if no key is pinned. You can also set a text or a
        negative number, as for `token`.
    """

    token = ResolvedIndex(None, allow_none=True).tag(sync=True)
    key = ResolvedIndex(None, allow_none=True).tag(sync=True)

    def _first_stack(self) -> str:
        return self.record.stack().name

    def _first_layer(self, stack: AttentionStack) -> int:
        """Return the first layer that has a head with an open gate, or the first of all layers."""
        has_open = (layer for layer in stack.layers if not closed_heads(stack, layer).all())
        return next(has_open, stack.layers[0])

    def resolve_number(self, name: str, value: Any) -> Any:
        """Replace the text of a token, or a negative number, by a non-negative number.

        `name` is the name of the trait. Raise TraitError if a text does not belong to exactly one
        token. Return other invalid values unchanged.
        """
        if name == "layer" or not is_looked_up(name, value):
            return super().resolve_number(name, value)
        stack = self._stack_named(self.stack)
        if name == "prediction":
            return resolve_negative(value, range(len(stack.query_tokens.predictions)))
        tokens = stack.query_tokens if name == "token" else stack.key_tokens
        if not isinstance(value, str):
            return resolve_negative(value, range(len(tokens)))
        with as_trait_errors():
            return tokens.position(value, name)

    def resolve_keys(self, name: str, values: Sequence[Any]) -> list[Any]:
        """Convert keys to positions, except "special" and "first".

        A text is replaced by the positions of all keys with this text. Raise TraitError if no key
        has the text. `name` is the name of the trait.
        """
        if not is_looked_up(name, values):
            return list(values)
        tokens = self._stack_named(self.stack).key_tokens
        keys: list[Any] = []
        for value in values:
            if isinstance(value, str) and value not in _KINDS_OF_KEYS:
                positions = tokens.positions(value)
                with as_trait_errors(
                    after='. Pass "special" or "first" for special tokens or the first token'
                ):
                    keys += positions or [tokens.position(value, name)]
            else:
                keys.append(resolve_negative(value, range(len(tokens))))
        return keys

    @traitlets.validate("token", "key")
    def _validate_token(self, proposal: Mapping[str, Any]) -> int | None:
        position: int | None = proposal["value"]
        name: str = proposal["trait"].name
        stack = self._stack_named(self.stack)
        sides = {"token": ("queries", stack.query_tokens), "key": ("keys", stack.key_tokens)}
        side, tokens = sides[name]
        if position is None:
            return None
        with as_trait_errors():
            positions = range(len(tokens))
            return existing_number(name, position, positions, f"stack {self.stack!r} has {side}")

    @traitlets.observe("stack")
    def _fit_to_stack(self, change: Mapping[str, Any]) -> None:
        super()._fit_to_stack(change)
        self._refit()
        before = self.record.stacks.get(change.get("old", ""))
        if before is not None:
            self._renew_defaults(before)

    def _siblings(self) -> list[list[str]]:
        groups = sibling_stacks(self.record.stacks.values())
        return [[stack.name for stack in group] for group in groups]

    def _fit_to_record(self, before: AttentionRecord) -> None:
        """Adapt the traits to the current record, which replaced the record `before`.

        If a trait still has a value that `_default_traits` chose for the old record, it gets the
        value for the new record. Other values are kept if they fit the new record.
        """
        stack = before.stack(self.stack)
        if self.stack in self.record.stacks:
            self._fit_to_stack({"new": self.stack})
        else:
            self.stack = self._first_stack()
        self._renew_defaults(stack)

    def _renew_defaults(self, before: AttentionStack) -> None:
        """Give traits that still have the default for the stack `before` their new default."""
        defaults = self._default_traits(before, before.layers[0])
        stack = self._stack_named(self.stack)
        for name, value in self._default_traits(stack, self.layer).items():
            # `_clip_heads` has already adapted `heads`.
            if name != "heads" and getattr(self, name) == defaults[name]:
                setattr(self, name, value)

    def _refit(self) -> None:
        """Replace each trait value that is not valid for the current record and stack.

        For example, a pinned query or key is unpinned if its position does not exist.
        """
        for name in self.state_names():
            try:
                # Set the trait to its own value, which validates the value again.
                setattr(self, name, getattr(self, name))
            except (ImportError, traitlets.TraitError):
                setattr(self, name, self._fitting_value(name))

    def _fitting_value(self, name: str) -> Any:
        """Return the new value of a trait whose current value is not valid any longer."""
        return self.trait_defaults(name)

    def _stack_named(self, name: str) -> AttentionStack:
        with as_trait_errors():
            return self.record.stack(name)


def same_tokens(first: AttentionRecord, second: AttentionRecord) -> bool:
    """Whether two records have stacks with the same names and the same tokens."""

    def tokens(record: AttentionRecord) -> dict[str, tuple[list[str], list[str]]]:
        return {
            name: (list(stack.query_tokens.text), list(stack.key_tokens.text))
            for name, stack in record.stacks.items()
        }

    return tokens(first) == tokens(second)


class _Layered(Protocol):
    def only(self, layers: int | Iterable[int]) -> Self: ...


_Shown = TypeVar("_Shown", bound=_Layered)


def with_layers(record: _Shown, include_layers: int | Iterable[int] | None) -> _Shown:
    """Return a record or corpus with only the layers `include_layers`. None keeps all layers."""
    if include_layers is None:
        return record
    try:
        return record.only(include_layers)
    except (IndexError, TypeError) as error:
        raise type(error)(f"include_layers: {error}") from None
