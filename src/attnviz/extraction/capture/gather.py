"""One attention of a model whose heads are divided over processes, put together from all of them.

Each process calls its attention function with its own heads, numbered from 0. Here queries, keys,
values and outputs of all of them become one call, as the undivided model would have made it, in
every process: the same formula is compared with the same output, and heads have their true numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.attention.flex_attention import BlockMask

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.families import attention_size, key_heads_of_config
from attnviz.extraction.parallel import Processes

__all__ = ["gathered"]


def gathered(
    call: AttentionCall, processes: Processes, model: nn.Module, name: str
) -> AttentionCall:
    """The call with the heads of all processes; all of them must ask for it.

    `name` is the path of the module that attends. The call itself where each process has all heads
    of that module. Raises NotImplementedError where the heads are not all there, or it is unclear
    which they are.
    """
    return _Gathering(call, processes, model, name).whole()


class _Gathering:
    def __init__(
        self, call: AttentionCall, processes: Processes, model: nn.Module, name: str
    ) -> None:
        self._call = call
        self._processes = processes
        self._name = name
        size = attention_size(model, name)
        self._num_heads = None if size is None else size.num_heads
        self._num_key_heads = key_heads_of_config(model, name) or (size and size.num_key_heads)
        key_heads = 0 if call.key is None else call.key.shape[1]
        own = {
            "module": name,
            "heads": call.num_heads,
            "key heads": key_heads,
            "examples": call.num_examples,
            "tokens": [call.num_queries, call.num_keys],
        }
        said = [json.loads(each) for each in processes.exchange(json.dumps(own).encode())]
        self._heads: list[int] = [each.pop("heads") for each in said]
        self._key_heads: list[int] = [each.pop("key heads") for each in said]
        if any(each != said[0] for each in said):
            raise RuntimeError(
                f"model: the processes that share its heads do not run the same: {said}; give each "
                "the same inputs"
            )

    def whole(self) -> AttentionCall:
        call = self._call
        if any(isinstance(each, DTensor) for each in (call.query, call.key, call.value)):
            self._refuse("gives its attention function tensors that are divided themselves")
        if self._each_has_all():
            return call
        in_all = sum(self._heads)
        if self._num_heads is not None and in_all != self._num_heads:
            self._refuse(
                f"has {self._listed(self._heads)} heads, and {self._num_heads} in its configuration"
            )
        query, weights = self._along(call.query, 1), self._along(call.weights, 1)
        key, value = self._keys_and_values()
        options = dict(call.options)
        if options.get("position_bias") is not None:
            options["position_bias"] = self._added(options["position_bias"])
        sinks = self._sinks()
        if sinks is not None:
            options["s_aux"] = sinks
        return replace(
            call,
            query=query,
            key=key,
            value=value,
            weights=weights,
            mask=self._added(call.mask),
            added=tuple(map(self._added, call.added)),
            options=options,
            output=self._output(),
        )

    def _each_has_all(self) -> bool:
        """Whether this module is not divided: a tower of a model, say, that the plan leaves out."""
        if len(set(self._heads)) > 1:
            return False
        if self._num_heads is not None:
            return self._heads[0] == self._num_heads
        # Nothing says how many there are: what is divided differs.
        first = self._call.query if self._call.query is not None else self._call.weights
        return first is None or self._same(first)

    def _same(self, tensor: torch.Tensor) -> bool:
        found = self._processes.gather(tensor, 1, [tensor.shape[1]] * self._processes.size)
        return all(torch.equal(each, found[0]) for each in found)

    def _along(
        self, tensor: torch.Tensor | None, axis: int, counts: Sequence[int] | None = None
    ) -> torch.Tensor | None:
        if tensor is None:
            return None
        return torch.cat(self._processes.gather(tensor, axis, counts or self._heads), dim=axis)

    def _keys_and_values(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Keys and values of all heads: as many as the model has, or one for each query head."""
        key, value, counts = self._call.key, self._call.value, self._key_heads
        if key is None:
            return None, self._along(value, 1) if value is not None else None
        if value is not None and value.shape[1] != key.shape[1]:
            self._refuse(f"has {key.shape[1]} heads of keys and {value.shape[1]} of values")
        if any(not few or many % few for many, few in zip(self._heads, counts, strict=True)):
            self._refuse(
                f"has {self._listed(self._heads)} heads, which read {self._listed(counts)} heads "
                "of keys"
            )
        keys = self._processes.gather(key, 1, counts)
        values = keys if value is None else self._processes.gather(value, 1, counts)
        every_key = [each for part in keys for each in part.unbind(1)]
        every_value = [each for part in values for each in part.unbind(1)]
        number_of = list(range(len(every_key)))
        if self._num_key_heads is not None and len(every_key) != self._num_key_heads:
            # Several processes have the same ones, where there are fewer heads than processes.
            number_of = _first_equal(every_key, every_value)
        kept = sorted(set(number_of))
        if self._num_key_heads is not None and len(kept) != self._num_key_heads:
            self._refuse(
                f"has {self._listed(counts)} heads of keys, of which {len(kept)} differ, and "
                f"{self._num_key_heads} in its configuration"
            )
        read = self._read(number_of)
        group, rest = divmod(len(read), len(kept))
        if rest or read != [number for number in kept for _ in range(group)]:
            # Groups of several sizes: a key head for each head.
            kept = read
        key = torch.stack([every_key[number] for number in kept], dim=1)
        if value is not None:
            value = torch.stack([every_value[number] for number in kept], dim=1)
        return key, value

    def _read(self, number_of: Sequence[int]) -> list[int]:
        """The key head that each head reads."""
        read, before = [], 0
        for many, few in zip(self._heads, self._key_heads, strict=True):
            read += [number_of[before + head // (many // few)] for head in range(many)]
            before += few
        return read

    def _added(self, tensor: Any) -> Any:
        """A mask or bias; of all heads where each has its own."""
        own = self._heads[self._processes.position]
        if isinstance(tensor, BlockMask):
            if tensor.shape[1] > 1:
                self._refuse("has a mask of its own for each head, as a function")
            return tensor
        if not isinstance(tensor, torch.Tensor) or tensor.dim() != 4:
            return tensor
        # All processes must come to the same answer: only in a process of one head may an axis of
        # one be of the heads, too.
        alone = 1 in self._heads
        if alone:
            sizes = [int(each) for each in self._processes.exchange(b"%d" % tensor.shape[1])]
            if sizes != self._heads or (set(sizes) == {1} and self._same(tensor)):
                return tensor
        elif tensor.shape[1] != own:
            return tensor
        return self._along(tensor, 1)

    def _sinks(self) -> torch.Tensor | None:
        """The sinks of all heads, where each process has those of its own."""
        call = self._call
        given = call.options.get("s_aux")
        if given is None:
            given = call.options.get("sinks", getattr(call.module, "sinks", None))
        if not isinstance(given, torch.Tensor):
            return None
        if isinstance(given, DTensor):
            given = given.to_local()
        own = self._heads[self._processes.position]
        return self._along(given.flatten(), 0) if given.numel() == own else given

    def _output(self) -> Any:
        """The output, where its shape says which numbers are whose."""
        call, value = self._call, self._call.value
        output = call.output
        if not isinstance(output, torch.Tensor) or value is None:
            return output
        shape = (call.num_examples, call.num_queries, call.num_heads, value.shape[-1])
        if output.numel() != torch.Size(shape).numel():
            return None
        return self._along(output.reshape(shape), 2)

    def _listed(self, counts: Sequence[int]) -> str:
        return " + ".join(map(str, counts))

    def _refuse(self, what: str) -> NoReturn:
        raise NotImplementedError(
            f"model: its heads are divided over {self._processes.size} processes (tensor "
            f"parallel), and {self._name} ({type(self._call.module).__name__}) {what}: which heads "
            "of the model these are is unclear. Load the whole model in one process "
            "(from_pretrained without tp_plan; device_map='auto' spreads its layers over devices)"
        )


def _first_equal(keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> list[int]:
    """For each head the number of the first that has the same keys and values."""
    found: list[int] = []
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        same = (
            other
            for other in sorted(set(found))
            if torch.equal(keys[other], key) and torch.equal(values[other], value)
        )
        found.append(next(same, number))
    return found
