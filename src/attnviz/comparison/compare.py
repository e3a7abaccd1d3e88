"""`compare`: two records, or models and inputs that become two records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.comparison.comparison import Comparison, compare_records
from attnviz.record.record import AttentionRecord

__all__ = ["compare"]


def compare(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    names: Sequence[str] | None = None,
    words: bool = False,
    **options: Any,
) -> Comparison:
    """Compare the attention of two texts, two models or two records.

    Parameters
    ----------
    a, b, c : object
        ``compare(record_a, record_b)``: two records. ``compare(model, text_a, text_b)``: one model
        reads two texts (or whatever inputs it takes). ``compare((model_a, model_b), text)``: two
        models read one text.
    names : pair of str, optional
        What the two are called, for example ``("base", "tuned")``; ``a`` and ``b`` when left out.
    words : bool, default False
        Whether tokens are merged into words before they are aligned. Give it where both the texts
        and the tokenizers differ.
    **options
        Further arguments of `attnviz.extract` (`tokenizer`, `layers`, `heads`, `target`, ...);
        a pair of values for `tokenizer` and `processor` where two models differ in them.

    Returns
    -------
    Comparison
        The two records on their common units, and the distances of their heads.

    Raises
    ------
    TypeError
        If the arguments are none of the three forms; says which.
    ValueError
        If the two have no stack or layer in common, or only one has rows that are shares of one.

    Examples
    --------
    >>> import attnviz as av
    >>> model, tokenizer = av.demos.load("decoder")                            # doctest: +SKIP
    >>> comparison = av.compare(model, "the cat sat", "the dog sat", tokenizer=tokenizer)
    ...                                                                        # doctest: +SKIP
    >>> comparison.distance()                                                  # doctest: +SKIP
    """
    pair = _names(names)
    records = _records(a, b, c, options)
    if words:
        records = (records[0].merge_words(), records[1].merge_words())
    return compare_records(*records, pair)


def _names(names: Sequence[str] | None) -> tuple[str, str]:
    if names is None:
        return ("a", "b")
    given: list[Any] = [names] if isinstance(names, str) else list(names)
    if len(given) != 2 or not all(isinstance(each, str) and each for each in given):
        raise ValueError(f'names={names!r} must be two texts, such as ("base", "tuned")')
    return (given[0], given[1])


def _records(
    a: Any, b: Any, c: Any, options: dict[str, Any]
) -> tuple[AttentionRecord, AttentionRecord]:
    if isinstance(a, AttentionRecord) or isinstance(b, AttentionRecord):
        for name, given in (("a", a), ("b", b)):
            if not isinstance(given, AttentionRecord):
                raise TypeError(
                    f"{name} must be an AttentionRecord, as the other is; got "
                    f"{type(given).__name__}"
                )
        if c is not None or options:
            given = ", ".join([*(["c"] if c is not None else []), *options])
            raise TypeError(f"a and b are records, which hold their tokens; leave out {given}")
        return a, b
    models = tuple(a) if isinstance(a, (tuple, list)) else None
    if models is None and c is None:
        raise TypeError(
            "give two records, a model and two inputs, or a pair of models and one input: "
            "compare(record_a, record_b), compare(model, text_a, text_b), "
            "compare((model_a, model_b), text)"
        )
    if models is not None and (len(models) != 2 or c is not None):
        raise TypeError(
            f"a is {len(models)} models{' and there are two inputs' if c is not None else ''}; "
            "give a pair of models and one input, compare((model_a, model_b), text)"
        )
    inputs = (b, b) if models is not None else (b, c)
    one, two = (
        _extracted(model, given, options, number)
        for number, (model, given) in enumerate(zip(models or (a, a), inputs, strict=True))
    )
    return one, two


def _extracted(model: Any, inputs: Any, options: dict[str, Any], number: int) -> AttentionRecord:
    from attnviz.extraction import extract

    its = {
        name: value[number]
        if name in ("tokenizer", "processor") and isinstance(value, (tuple, list))
        else value
        for name, value in options.items()
    }
    record: AttentionRecord | list[AttentionRecord] = extract(model, inputs, **its)
    if isinstance(record, AttentionRecord):
        return record
    if len(record) == 1:
        return record[0]
    raise ValueError(
        f"the input holds {len(record)} examples, and one is compared with one: "
        "compare(records_a[i], records_b[i])"
    )
