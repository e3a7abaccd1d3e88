"""How long the page of a long text takes, and the next page of the same record.

    cd tests && ../.venv/bin/python -m benchmarks.long_pages [tokens] [heads] [threads]

Reports processor seconds, which do not depend on what else the machine does, beside what a clock
says, and counts what was computed.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from attnviz.record.attention import QueryKeyAttention
from attnviz.views.head import HeadView
from attnviz.views.matrix import MatrixView
from unit.long_records import long_record


def main(tokens: int = 20_000, heads: int = 12, threads: int = 2) -> None:
    """Save one layer as the page of a head view, and then as that of a matrix view."""
    torch.set_num_threads(threads)
    record = long_record(tokens, heads=heads, key_heads=heads, head_dim=64, varied=True)
    computed = 0
    compute = QueryKeyAttention.weights

    def counted(attention: QueryKeyAttention, *place: Any) -> Any:
        nonlocal computed
        found = compute(attention, *place)
        computed += found.size
        return found

    QueryKeyAttention.weights = counted  # type: ignore[method-assign, assignment]
    write = sys.stdout.write
    write(f"1 layer of {heads} heads, {tokens:,} tokens, {threads} threads\n")
    for view in (HeadView(record), MatrixView(record)):
        computed, processor, clock = 0, time.process_time(), time.perf_counter()
        page = view.to_html()
        processor, clock = time.process_time() - processor, time.perf_counter() - clock
        write(
            f"{type(view).__name__:10} {len(page) / 1e6:5.1f} MB, {processor:5.1f} processor "
            f"seconds, {clock:5.1f} by the clock, {computed:,} weights computed\n"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
