"""Extraction, tiles and statistics on a GPU, beside the model's own forward, and what is copied.

    cd tests && ../.venv/bin/python -m benchmarks.gpu                        the first CUDA device
    cd tests && ../.venv/bin/python -m benchmarks.gpu --write-docs           and docs/benchmarks.md
    cd tests && ../.venv/bin/python -m benchmarks.gpu --device cpu --small   the script itself

A model of Llama's architecture with 1 B parameters and random weights, in bfloat16: weights decide
neither time nor memory. Each figure has its goal beside it. What is not installed, or does not fit
into the device's memory, is left out and says so.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaModel
from transformers.utils import is_flash_attn_2_available

import attnviz as av
from attnviz.record.attention import QueryKeyAttention
from attnviz.record.record import AttentionStack
from attnviz.server.pyramid import Budget
from attnviz.server.server import RecordServer
from attnviz.server.tiles import answered_tile
from attnviz.utils.progress import completed
from benchmarks.building import measured
from benchmarks.figures import Figure, median, megabytes, seconds, spread, table
from benchmarks.guarded import ROOT
from benchmarks.reading import loaded, plain, texts_of
from unit.long_records import long_record

#: Where `--write-docs` puts the figures; `make bench` takes them into its page.
PUBLISHED = ROOT / "docs" / "benchmarks-gpu.json"
RATIO_GOAL, TILE_GOAL_S = 1.05, 0.005
IMPLEMENTATIONS = ("sdpa", "flash_attention_2", "eager")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    layers: int
    hidden: int
    heads: int
    key_heads: int
    lengths: tuple[int, ...]
    #: Of the text whose queries and keys are written to a folder.
    spooled: int
    #: Of the text from which a tile is taken.
    tiled: int
    texts: int
    turns: int


LARGE = Sizes(16, 2048, 32, 8, (1024, 8192, 32_768), 131_072, 32_768, 2000, 6)
SMALL = Sizes(2, 32, 4, 2, (64, 128), 256, 512, 16, 3)


class Copies(TorchDispatchMode):
    """Count copies of tensors from one kind of device to another, in this thread.

    Parameters
    ----------
    source, target : str
        Kinds of devices: ``"cuda"``, ``"cpu"``. Both may be the same.

    Attributes
    ----------
    count, bytes : int
        Of tensors with more than one element: numbers by themselves are read for decisions.
    """

    _COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)

    def __init__(self, source: str, target: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._source, self._target = source, target
        self.count = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in self._COPIES:
            # `copy_` writes its second argument into the first.
            given = args[1] if func is torch.ops.aten.copy_.default else args[0]
            fits = (given.device.type, made.device.type) == (self._source, self._target)
            if fits and given.numel() > 1:
                self.count += 1
                self.bytes += given.numel() * given.element_size()
        return made


class Device:
    """What is measured on: waits until it has done its work, and knows its largest memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_cuda = torch.device(name).type == "cuda"

    @property
    def words(self) -> str:
        """Its name, to be read."""
        if not self.is_cuda:
            return f"the CPU, {torch.get_num_threads()} threads"
        return f"{torch.cuda.get_device_name(self.name)}, CUDA {torch.version.cuda}"

    def wait(self) -> None:
        """Until all that was asked for is done."""
        if self.is_cuda:
            torch.cuda.synchronize(self.name)

    def growth(self, run: Callable[[], Any]) -> float:
        """Bytes by which the memory in use was at most larger than before."""
        gc.collect()
        if not self.is_cuda:
            return measured(run)[2]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.name)
        before = torch.cuda.memory_allocated(self.name)
        run()
        self.wait()
        return float(torch.cuda.max_memory_allocated(self.name) - before)

    def timed(self, run: Callable[[], Any]) -> float:
        """Seconds."""
        self.wait()
        start = time.perf_counter()
        run()
        self.wait()
        return time.perf_counter() - start


@contextmanager
def _left_out(line: dict[str, Any]) -> Iterator[None]:
    """What does not fit into memory says so in its line."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, MemoryError) as error:
        line["fault"] = f"does not fit into memory: {str(error).splitlines()[0][:100]}"
    finally:
        gc.collect()


class Run:
    """One run: a model on a device, and what was measured until now."""

    def __init__(self, device: Device, sizes: Sizes) -> None:
        self._device, self._sizes = device, sizes
        self.lines: list[dict[str, Any]] = []
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=32_000 if device.is_cuda else 256,
            hidden_size=sizes.hidden,
            intermediate_size=4 * sizes.hidden,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            num_key_value_heads=sizes.key_heads,
            max_position_embeddings=max(sizes.spooled, sizes.tiled, *sizes.lengths),
        )
        self._vocabulary = config.vocab_size
        model: Any = LlamaModel(config).eval().to(torch.bfloat16).to(device.name)
        self._model = model
        self.parameters = sum(each.numel() for each in model.parameters())

    def all(self) -> None:
        """Every table of it."""
        for tokens in self._sizes.lengths:
            for implementation in IMPLEMENTATIONS:
                self._extraction(tokens, implementation)
        self._spooled()
        self._tile()
        self._statistics()

    def _add(self, **line: Any) -> dict[str, Any]:
        self.lines.append(line)
        return line

    def _ids(self, tokens: int) -> dict[str, torch.Tensor]:
        ids = torch.arange(tokens, device=self._device.name)[None] % self._vocabulary
        return {"input_ids": ids}

    def _plain(self, tokens: int) -> Callable[[], Any]:
        ids = self._ids(tokens)

        def run() -> None:
            with torch.inference_mode():
                self._model(**ids, use_cache=False)

        return run

    def _extract(self, tokens: int, **options: Any) -> Callable[[], Any]:
        ids = self._ids(tokens)
        return lambda: av.extract(self._model, ids, progress=False, **options)

    def _chosen(self, implementation: str) -> str | None:
        """Take an implementation of attention; in words why it cannot be taken."""
        if implementation == "flash_attention_2":
            if not self._device.is_cuda:
                return "needs a CUDA device"
            if not is_flash_attn_2_available():
                return "flash-attn is not installed"
        self._model.set_attn_implementation(implementation)
        return None

    def _extraction(self, tokens: int, implementation: str) -> None:
        fault = self._chosen(implementation)
        name = f"extract, {implementation}, n = {tokens:,}"
        line = self._add(what=name, goal=f"{RATIO_GOAL:.2f}x a plain forward, nothing copied")
        if fault:
            line["fault"] = fault
            return
        forward = self._plain(tokens)
        # Where queries and keys stay on the device.
        extract = self._extract(tokens, device=None)
        with _left_out(line):
            self._compare(line, forward, extract)
        if "fault" in line:
            return
        moved = self._add(
            what=f"{name}, kept in main memory (device='cpu', the default)", goal="one copy a layer"
        )
        with _left_out(moved):
            self._compare(moved, forward, self._extract(tokens, device="cpu"))

    def _compare(
        self, line: dict[str, Any], forward: Callable[[], Any], other: Callable[[], Any]
    ) -> None:
        """Turns of a plain forward and of something else, memory, and copies to the host."""
        forward()
        other()
        alone: list[float] = []
        took: list[float] = []
        for _ in range(self._sizes.turns):
            alone.append(self._device.timed(forward))
            took.append(self._device.timed(other))
        line |= {
            "plain_s": alone,
            "s": took,
            "ratio": [one / base for one, base in zip(took, alone, strict=True)],
            "plain_bytes": self._device.growth(forward),
            "bytes": self._device.growth(other),
        }
        # On a CPU nothing is copied to a host, and the copies that there are are counted.
        counted = Copies(torch.device(self._device.name).type, "cpu")
        with counted:
            other()
        line |= {"copies": counted.count, "copied_bytes": counted.bytes}

    def _spooled(self) -> None:
        tokens = self._sizes.spooled
        fast = "flash_attention_2"
        implementation = fast if self._chosen(fast) is None else "sdpa"
        self._chosen(implementation)
        line = self._add(
            what=f"extract, {implementation}, n = {tokens:,}, spool=",
            goal="memory of one layer at a time",
        )
        with _left_out(line), tempfile.TemporaryDirectory() as folder:
            made = 0

            def extract() -> None:
                nonlocal made
                made += 1
                self._extract(tokens, spool=Path(folder) / str(made))()

            self._compare(line, self._plain(tokens), extract)

    def _tile(self) -> None:
        tokens = self._sizes.tiled
        made = long_record(tokens, heads=2, key_heads=1)
        own = made.stack().attention(0)
        if not isinstance(own, QueryKeyAttention):
            raise TypeError(f"a long record has queries and keys; got {type(own).__name__}")
        name = self._device.name
        moved = QueryKeyAttention(own.queries.to(name), own.keys.to(name), own.scale, own.mask)
        stack = AttentionStack("self", {0: moved}, made.stack().query_tokens)
        last = max(0, tokens // 256 - 1)
        for what, level, place in (
            ("a tile of 256 x 256 tokens", 0, last),
            ("a tile of all tokens", last.bit_length(), 0),
        ):
            pyramids = RecordServer(made).pyramids

            def answer(level: int = level, place: int = place, pyramids: Any = pyramids) -> None:
                completed(
                    answered_tile(
                        stack,
                        pyramids,
                        layer=0,
                        heads=[0],
                        level=level,
                        place=(place, 0),
                        pooled="mean",
                        precision="float32",
                        budget=Budget(3600),
                    )
                )

            goal = f"{TILE_GOAL_S * 1e3:.0f} ms" if level == 0 else "–"
            line = self._add(what=f"{what}, of {tokens:,}", goal=goal)
            with _left_out(line):
                line["first_s"] = self._device.timed(answer)
                line["s"] = [self._device.timed(answer) for _ in range(self._sizes.turns)]

    def _statistics(self) -> None:
        try:
            model, tokenizer = loaded()
        except SystemExit as error:
            self._add(what="statistics of a corpus", goal="–", fault=str(error))
            return
        model.to(self._device.name)
        texts = texts_of(self._sizes.texts, tokenizer)
        line = self._add(
            what=f"head_statistics of {len(texts):,} texts (all-MiniLM-L6-v2)", goal="–"
        )

        def statistics() -> None:
            av.head_statistics(model, texts, tokenizer=tokenizer, progress=False)

        def forwards() -> None:
            plain(model, tokenizer, texts)

        with _left_out(line):
            statistics()
            forwards()
            line["plain_s"] = [self._device.timed(forwards) for _ in range(2)]
            line["s"] = [self._device.timed(statistics) for _ in range(2)]
            line["ratio"] = median(line["s"]) / median(line["plain_s"])


def rows(lines: list[Mapping[str, Any]]) -> list[list[str]]:
    """The table."""
    found = [["", "time", "of a plain forward's", "memory added", "copied to the host", "goal"]]
    for line in lines:
        if "fault" in line:
            found.append([line["what"], f"left out: {line['fault']}", "", "", "", line["goal"]])
            continue
        ratio: Figure | None = line.get("ratio")
        added = line["bytes"] - line["plain_bytes"] if "bytes" in line else None
        first = f", first {seconds(line['first_s'])}" if "first_s" in line else ""
        copied = ""
        if "copies" in line:
            times = f"{line['copies']:,} times, {megabytes(line['copied_bytes'])}"
            copied = times if line["copies"] else "nothing"
        found.append(
            [
                line["what"],
                spread(line["s"], seconds) + first,
                "" if ratio is None else spread(ratio, lambda value: f"{value:.2f}x"),
                "" if added is None else megabytes(max(0.0, added)),
                copied,
                line["goal"],
            ]
        )
    return found


def section(told: Mapping[str, Any]) -> str:
    """The table of a run, with what it was measured on, for docs/benchmarks.md."""
    return f"""From one run of `python -m benchmarks.gpu` on {told["device"]}; {told["packages"]};
{told["date"]}. A model of Llama's architecture with {told["parameters"] / 1e9:.2f} B parameters,
random weights, bfloat16; one text of n tokens. Forwards and extractions take turns. Memory added:
how much more of the device's memory extraction needs at most than the plain forward, with the
queries and keys that it keeps.

{table(rows(told["lines"]))}"""


def main(arguments: list[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a trial")
    parser.add_argument("--small", action="store_true", help="sizes that a CPU does in seconds")
    usual = ROOT / "test-results" / "benchmarks-gpu.json"
    parser.add_argument("--json", type=Path, default=usual, help="where the figures go")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.*, too")
    options = parser.parse_args(arguments)
    device = Device(options.device)
    if device.is_cuda and not torch.cuda.is_available():
        parser.error(
            f"--device {options.device}: torch {torch.__version__} finds no CUDA device; on a "
            "machine without one try --device cpu --small"
        )
    if options.write_docs and not device.is_cuda:
        parser.error(f"--write-docs is for a CUDA device; got --device {options.device}")
    run = Run(device, SMALL if options.small else LARGE)
    run.all()
    told = {
        "device": device.words,
        "packages": f"attnviz {av.__version__}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "parameters": run.parameters,
        "sizes": asdict(SMALL if options.small else LARGE),
        "lines": run.lines,
    }
    sys.stdout.write(section(told))
    written = json.dumps(told, indent=1) + "\n"
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(written, encoding="utf-8")
    if options.write_docs:
        PUBLISHED.write_text(written, encoding="utf-8")
        write_again = "python -m benchmarks --from ../docs/benchmarks.json --write-docs"
        sys.stderr.write(
            f"docs/benchmarks-gpu.json is written; docs/benchmarks.md: {write_again}\n"
        )


if __name__ == "__main__":
    main()
