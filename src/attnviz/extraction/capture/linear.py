"""Capture of linear layers: linear attention and state-space models.

A linear layer calls a function, its rule, with queries, keys, values and decays. If the package
flash-linear-attention (fla) or mamba-ssm is installed, transformers' rules call its kernels. Layers
of fla call the kernels themselves, so the kernels are rules, too. A rule is a global variable of
the file that defines the layer's ``forward``. During a capture, this variable has another function,
which calls the rule and reports its arguments and its output. Lightning attention is computed in
the layer's own code, so hooks report it.

The arguments determine the weights M of the layer, which are checked: M multiplied by the values
must give the output. For Mamba-1, the rows of M must sum to 1 instead. See `attnviz.record.linear`
for the formulas.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from attnviz.extraction.capture.dispatch import AttentionCall
from attnviz.extraction.capture.masks import Positions, without_padding
from attnviz.extraction.families import LIGHTNING_RATES, LINEAR_RULES
from attnviz.extraction.hooks import Hooks
from attnviz.record.linear import LinearAttention, SelectiveAttention, StateAttention
from attnviz.utils.cleanup import Cleanup, SharedReplacement

# Maximum number of rows of each head whose outputs are compared with the model's own.
_ROWS = 32
# Largest accepted error of an output vector o = M v, with the weights M and the values v, as a
# multiple of a rounding error. The error is relative to |o| + (|M| + N) |v|. N are the weights of
# `_typical_products`. The rounding error is the largest of three: that of the output's dtype,
# that of the values' dtype, because a rule may return sums of rounded products in float32, and that
# of TF32 (`_TF32`), because kernels on a GPU may multiply in TF32. A wrong formula has a larger
# error: 0.01 to 0.3 in random models with a delta rule if erasing is ignored.
_ROUNDINGS = 4.0
_TF32 = 2.0**-10
_TINY = torch.finfo(torch.float32).tiny
# Arguments of rules that must be None: a state from an earlier call, and borders between texts that
# are packed into one sequence. The weights M do not include them.
_UNKNOWN = ("initial_state", "initial_states", "cu_seqlens", "seq_idx")
# Arguments whose names in fla and mamba-ssm differ from those in transformers.
_NAMES = {
    "q": "query",
    "k": "key",
    "v": "value",
    "x": "hidden_states",
    "u": "hidden_states",
    "delta": "dt",
}


@dataclass(frozen=True, kw_only=True)
class RuleCall(AttentionCall):
    """Inputs and output of one call of a rule.

    `output` is (batch, tokens, heads, value_dim), and `value` is (batch, heads, tokens, value_dim).
    A call of Mamba-1 counts as one head, and its channels are the axis value_dim. Its weights are
    not factors of its values (`SelectiveAttention`).

    Attributes
    ----------
    value : Tensor
        Values of the tokens.
    rule : str
        Name of the rule, a key of `LINEAR_RULES`.
    arguments : dict
        Arguments of the rule, by name.
    """

    value: torch.Tensor
    rule: str
    arguments: dict[str, Any]


#: Function that receives the name of a rule, its arguments and its output. It may change the output
#: in place, for an intervention.
RuleSink = Callable[[str, dict[str, Any], torch.Tensor], None]
_sink: ContextVar[RuleSink | None] = ContextVar("attnviz_rule_sink", default=None)


def report_rules(modules: Sequence[nn.Module], sink: RuleSink, undo: Cleanup) -> None:
    """Pass the calls of rules in this thread to `sink` until the ``with`` block of `undo` ends.

    `modules` are the linear layers of the model.
    """
    undo.add(partial(_sink.set, _sink.get()))
    _sink.set(sink)
    for module in modules:
        if hasattr(module, LIGHTNING_RATES):
            _hook_lightning(module, undo)
    for namespace in {id(space): space for space in map(globals_of, modules)}.values():
        for name in LINEAR_RULES.keys() & namespace.keys():
            # The variable of a kernel that is not installed may be None.
            if callable(namespace[name]):
                _replacement_of(namespace, name).hold(undo)


def _hook_lightning(lightning: Any, undo: Cleanup) -> None:
    """Report the attention of a module with lightning attention as a call of a rule.

    The module computes it between two of its submodules. The output of ``qkv_proj``, after the
    activation function, is the reported argument "vectors": queries, keys and values, one after the
    other in the last axis. The input of ``norm`` is the reported output.
    """
    projected: list[torch.Tensor] = []

    def keep(_module: nn.Module, _args: Any, output: torch.Tensor) -> None:
        projected[:] = [output]

    def report(_module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        sink = _sink.get()
        if sink is not None and projected:
            heads, rates = lightning.num_attention_heads, getattr(lightning, LIGHTNING_RATES)
            vectors = lightning.act_fn(projected.pop()).unflatten(-1, (heads, -1))
            # A view, not a copy, so that `sink` can change the input of ``norm`` in place.
            output = args[0].unflatten(-1, (heads, -1))
            sink("lightning attention", {"vectors": vectors, "rates": rates}, output)

    Hooks(undo).add(lightning.qkv_proj.register_forward_hook, keep)
    Hooks(undo).add(lightning.norm.register_forward_pre_hook, report)


def globals_of(module: nn.Module) -> dict[str, Any]:
    """Return the global variables of the file that defines the ``forward`` of a module."""
    forward = inspect.unwrap(type(module).forward)
    namespace: dict[str, Any] = forward.__globals__
    return namespace


_replacements: dict[tuple[int, str], SharedReplacement[Any]] = {}


def _replacement_of(namespace: dict[str, Any], name: str) -> SharedReplacement[Any]:
    """Return the replacement of a rule, which is a global variable in `namespace`."""
    return _replacements.setdefault(
        (id(namespace), name),
        SharedReplacement(
            partial(namespace.__getitem__, name),
            partial(namespace.__setitem__, name),
            partial(_reporting, name),
        ),
    )


def _reporting(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
    # If the package ``kernels`` is used, a rule is a module, and its ``forward`` has the signature.
    function = type(rule).forward.__get__(rule) if isinstance(rule, nn.Module) else rule
    signature = inspect.signature(function)

    @wraps(rule)
    def reporting(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        sink = _sink.get()
        if sink is not None:
            output = result[0] if isinstance(result, tuple) else result
            sink(name, signature.bind(*args, **kwargs).arguments, output)
        return result

    return reporting


def rule_call(
    module: nn.Module, rule: str, arguments: Mapping[str, Any], output: torch.Tensor
) -> RuleCall:
    """Return the call of a rule from what `report_rules` has reported."""
    arguments = {
        _NAMES.get(key, key): value
        for key, value in {**arguments.get("kwargs", {}), **arguments}.items()
    }
    borders = arguments.get("cu_seqlens")
    if borders is not None and len(borders) == 2:
        # If a layer of fla gets an attention mask, it passes the two ends of the text, which can be
        # ignored.
        arguments["cu_seqlens"] = None
    kind = LINEAR_RULES[rule]
    if kind == "lightning":
        values = arguments["vectors"].chunk(3, dim=-1)[2]
    else:
        values = arguments["value" if kind == "delta rule" else "hidden_states"]
    if kind == "Mamba-1":
        # Both tensors are (batch, channels, tokens).
        values, output = (tensor.transpose(1, 2)[:, :, None] for tensor in (values, output))
    return RuleCall(
        module,
        value=values.transpose(1, 2),
        output=output,
        multiplies_values=kind != "Mamba-1",
        rule=rule,
        arguments=arguments,
    )


def read_linear(call: RuleCall, unpadded: Sequence[Positions], name: str) -> list[StateAttention]:
    """Return the attention of each example of a call, without padding.

    `unpadded` has the tokens of each example that are not padding. `name` is the path of the
    module. Raise NotImplementedError if an argument in `_UNKNOWN` is not None, if there is padding
    between the tokens of an example, or if the check that the module docstring describes fails.
    """
    for argument in _UNKNOWN:
        if call.arguments.get(argument) is not None:
            raise NotImplementedError(
                f"model: {name} calls {call.rule} with {argument}, which cannot be shown. Pass one "
                "text, and no cache."
            )
    for tokens in (positions.queries for positions in unpadded):
        if tokens is not None and len(tokens) and int(tokens[-1] - tokens[0]) >= len(tokens):
            raise NotImplementedError(
                f"inputs: attention_mask has padding between tokens, at which the state of {name} "
                f"({call.rule}) decays. Pass a mask with padding only before or after the tokens."
            )
    read, attentions = _READERS[LINEAR_RULES[call.rule]], []
    with torch.no_grad():
        for index, positions in enumerate(unpadded):
            part = partial(_part, index=index, unpadded=positions.queries)
            attentions.append(read(call, part))
            _check(attentions[-1], call, part, name)
    return attentions


def _part(tensor: torch.Tensor, index: int, unpadded: torch.Tensor | None) -> torch.Tensor:
    """Return example `index` of a tensor (batch, tokens, heads, ...), as (heads, tokens, ...).

    `unpadded` has the indices of the tokens that are not padding. None means that none is padding.
    """
    return without_padding(tensor.transpose(1, 2), index, unpadded).float()


#: `_part` for one example: its only argument is the tensor.
_Part = Callable[[torch.Tensor], torch.Tensor]


def _delta_rule(call: RuleCall, part: _Part) -> LinearAttention:
    """Read a delta rule. In Kimi delta attention, `g` also has an axis key_dim.

    In the options of a kernel of fla, `g` and `beta` may be numbers from which the kernel computes
    the log decay and the strengths.
    """
    arguments = call.arguments
    queries, keys, strengths = (part(arguments[key]) for key in ("query", "key", "beta"))
    decay = arguments.get("g")
    decay = torch.zeros_like(strengths) if decay is None else part(decay)
    if arguments.get("use_gate_in_kernel"):
        decay = _decay_of_gate(decay, arguments)
    if arguments.get("use_beta_sigmoid_in_kernel"):
        strengths = strengths.sigmoid() * (2 if arguments.get("allow_neg_eigval") else 1)
    if arguments.get("use_qk_l2norm_in_kernel"):
        queries, keys = (
            vectors / (vectors.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt()
            for vectors in (queries, keys)
        )
    scale = arguments.get("scale")
    return LinearAttention(
        queries * (queries.shape[-1] ** -0.5 if scale is None else scale),
        keys,
        decay if decay.dim() == 3 else decay[..., None],
        strengths,
        erases=True,
    )


def _decay_of_gate(gate: torch.Tensor, arguments: Mapping[str, Any]) -> torch.Tensor:
    """Return the log decay that a kernel of fla computes from a gate, (heads, tokens, ...)."""
    of_heads = (len(gate), *(1,) * (gate.dim() - 1))
    rate, bias, bound = (arguments.get(key) for key in ("A_log", "dt_bias", "lower_bound"))
    if bias is not None:
        gate = gate + bias.float().reshape(len(gate), 1, *gate.shape[2:])
    factor = 1.0 if rate is None else rate.float().exp().reshape(of_heads)
    if bound is not None:
        return float(bound) * (factor * gate).sigmoid()
    return -factor * functional.softplus(gate)


def _mamba2(call: RuleCall, part: _Part) -> LinearAttention:
    arguments = call.arguments
    steps = _steps(arguments["dt"], arguments.get("dt_bias"), softplus=arguments.get("dt_softplus"))
    steps = part(steps.clamp(*arguments.get("dt_limit", (0.0, math.inf))))
    skips = arguments.get("D")
    if skips is not None and skips.dim() > 1:
        raise NotImplementedError(
            f"model: {type(call.module).__name__} calls {call.rule} with a number D for each "
            "dimension of the values, so a head has no single matrix of weights."
        )
    return LinearAttention(
        part(arguments["C"]),
        part(arguments["B"]),
        (arguments["A"].float()[:, None] * steps)[..., None],
        steps,
        skips=None if skips is None else skips.float(),
    )


def _mamba1(call: RuleCall, part: _Part) -> SelectiveAttention:
    """Read the rule of Mamba-1. Its tensors are (batch, channels or states, tokens)."""
    arguments = call.arguments

    def of_head(tensor: torch.Tensor) -> torch.Tensor:
        return part(tensor.transpose(1, 2)[:, :, None])

    bias, gate, skips = (arguments.get(key) for key in ("delta_bias", "z", "D"))
    bias = None if bias is None else bias[:, None]
    outputs = part(call.output)
    readout = outputs / outputs.square().sum(dim=-1, keepdim=True).clamp_min(_TINY)
    rates = arguments["A"].float()[None]
    return SelectiveAttention(
        of_head(arguments["C"]),
        of_head(arguments["B"]),
        of_head(_steps(arguments["dt"], bias, softplus=arguments.get("delta_softplus"))),
        rates,
        of_head(arguments["hidden_states"]),
        readout if gate is None else readout * functional.silu(of_head(gate)),
        torch.zeros_like(rates[..., 0]) if skips is None else skips.float()[None],
    )


def _steps(
    steps: torch.Tensor, bias: torch.Tensor | None, *, softplus: bool | None
) -> torch.Tensor:
    steps = steps if bias is None else steps + bias.to(steps.dtype)
    return functional.softplus(steps) if softplus else steps


def _lightning(call: RuleCall, part: _Part) -> LinearAttention:
    """Read lightning attention. `_hook_lightning` explains its argument "vectors"."""
    queries, keys, _ = part(call.arguments["vectors"]).chunk(3, dim=-1)
    strengths = torch.ones_like(queries[..., 0])
    decay = -call.arguments["rates"].float().view(-1, 1) * strengths
    return LinearAttention(queries, keys, decay[..., None], strengths)


_READERS: dict[str, Callable[..., StateAttention]] = {
    "delta rule": _delta_rule,
    "Mamba-2": _mamba2,
    "Mamba-1": _mamba1,
    "lightning": _lightning,
}


def _check(attention: StateAttention, call: RuleCall, part: _Part, name: str) -> None:
    """Check that weights times values give the outputs, as far as rounding allows.

    For Mamba-1, check instead that each row sums to 1, or to 0 if the output is 0. At most `_ROWS`
    rows are compared. Raise NotImplementedError if they differ, and ValueError if they have NaN or
    infinity. `name` is the path of the module.
    """
    outputs, values = part(call.output), part(call.value.transpose(1, 2))
    if not call.multiplies_values:
        # With ones as values, M v has the sums of the rows.
        outputs = outputs.any(dim=-1, keepdim=True).float()
        values = torch.ones_like(outputs)
    num_tokens = attention.num_keys
    rows = torch.linspace(0, max(0, num_tokens - 1), min(num_tokens, _ROWS)).long()
    weights = attention.block(range(attention.num_heads), rows)
    own = outputs[:, rows.to(outputs.device)]
    error = (weights @ values - own).norm(dim=-1)
    sizes = weights.abs()
    if isinstance(attention, LinearAttention):
        sizes += _typical_products(attention).block(range(attention.num_heads), rows)
    size = own.norm(dim=-1) + (sizes @ values.norm(dim=-1, keepdim=True))[..., 0]
    share = float((error / size.clamp_min(_TINY)).amax()) if num_tokens else 0.0
    if not math.isfinite(share):
        raise ValueError(
            f"model: {name} ({call.rule}) returned NaN or infinity. Check its weights and its "
            "dtype."
        )
    epsilons = [torch.finfo(dtype).eps for dtype in (call.output.dtype, call.value.dtype)]
    if share > _ROUNDINGS * max(_TF32, *epsilons):
        raise NotImplementedError(
            f"model: the output of {name} ({call.rule}) differs by {share:.1%} from the output "
            "that follows from its formula, so its attention cannot be shown."
        )


def _typical_products(attention: LinearAttention) -> LinearAttention:
    """Return `attention` without erasing, and with ``|q| |k| / sqrt(key_dim)`` instead of q k^T.

    This is the size of q k^T for vectors of random directions. A kernel that rounds q and k makes
    an error of this size times a rounding error, even if the sum q k^T is almost 0.
    """
    queries, keys = (
        vectors.norm(dim=-1, keepdim=True) for vectors in (attention.queries, attention.keys)
    )
    return replace(
        attention,
        queries=queries * attention.keys.shape[-1] ** -0.5,
        keys=keys,
        log_decay=attention.log_decay.amax(dim=-1, keepdim=True),
        strengths=attention.strengths.abs(),
        erases=False,
        skips=None,
    )
