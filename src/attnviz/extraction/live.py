"""A generation that can be watched: each token as the model produces it, with its attention.

The model generates in a thread, so that a kernel stays free. What was read does not change any
more, and any thread may look at it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import GenerationConfig

from attnviz.extraction.capture.forward import check_capture, run_forward
from attnviz.extraction.capture.growth import OTHERWISE, GrowingAttention
from attnviz.extraction.families import family_of
from attnviz.extraction.inputs.batch import Batch, ProducedText, split_examples
from attnviz.extraction.inputs.encode import Encoder, examples_of
from attnviz.extraction.inputs.generate import (
    Follower,
    Generated,
    GenerationSettings,
    generate_text,
    read_generation_settings,
)
from attnviz.extraction.inputs.truncate import read_truncation
from attnviz.extraction.models import Loaded, load, name_of
from attnviz.extraction.options import CaptureOptions, Heads, Layers, read_capture_options
from attnviz.extraction.predictions import ReadSteps
from attnviz.extraction.records import records_of_forward
from attnviz.extraction.tokens.text import token_texts
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Candidate
from attnviz.utils.arguments import from_end, spans

__all__ = ["GenerationStep", "LiveGeneration", "generate_live"]


@dataclass(frozen=True)
class GenerationStep:
    """One token, as the model produced it.

    Attributes
    ----------
    position : int
        Where the token stands in the text, counted from 0.
    token : Candidate
        The token that came: its text, its id and the model's own probability.
    candidates : tuple of Candidate
        The likeliest tokens in this step, best first.

    Examples
    --------
    >>> for step in attnviz.generate_live(model, "the cat", generate=3):    # doctest: +SKIP
    ...     print(step.position, step.text, step.token.probability)
    """

    position: int
    token: Candidate
    candidates: tuple[Candidate, ...]
    _row: Callable[[str | None, int, int | None, int], NDArray[np.float32]] = field(
        repr=False, compare=False
    )

    @property
    def text(self) -> str:
        """The token's text, as views show it."""
        return self.token.text

    @property
    def query(self) -> int:
        """The query that predicted the token: the position before it."""
        return self.position - 1

    def weights(
        self, *, layer: int, head: int | None = None, stack: str | None = None
    ) -> NDArray[np.float32]:
        """The row of weights of the query that predicted the token, computed now.

        Parameters
        ----------
        layer : int
            The model's number of the layer; negative from the end.
        head : int, optional
            A head of it, likewise; all that are kept when left out.
        stack : str, optional
            Which stack; that of the text when left out.

        Returns
        -------
        ndarray
            float32, (keys,) for one head, otherwise (heads, keys); the keys are all tokens before
            this one.

        Raises
        ------
        IndexError, KeyError
            If the layer, head or stack does not exist.

        Examples
        --------
        >>> step.weights(layer=0).shape    # doctest: +SKIP
        (4, 12)
        """
        return self._row(stack, layer, head, self.position)


# Generations of which more may come.
_running: weakref.WeakSet[LiveGeneration] = weakref.WeakSet()
# Seconds that a step may take once Python ends.
_LAST_STEP = 10.0


@atexit.register
def _end_all() -> None:
    """Have no thread in the middle of a step when Python ends, which torch would abort."""
    left = [each for each in _running if each.running]
    for each in left:
        each.stop()
    for each in left:
        each._thread.join(_LAST_STEP)


class LiveGeneration:
    """A generation under way, which `attnviz.generate_live` begins.

    ``async for`` and ``for`` give a `GenerationStep` for each token. Leaving such a loop before its
    end stops the generation; what is there stays.

    Attributes
    ----------
    steps : list of GenerationStep
        One for each token that has come.
    most : int or None
        How many tokens may come; None where only the whole length is bounded.

    Examples
    --------
    >>> generation = attnviz.generate_live(model, "the cat", generate=20)    # doctest: +SKIP
    >>> async for step in generation:                                        # doctest: +SKIP
    ...     print(step.text)
    >>> record = generation.record                                           # doctest: +SKIP
    """

    def __init__(
        self,
        loaded: Loaded,
        encoder: Encoder,
        batch: Batch,
        settings: GenerationSettings,
        *,
        options: CaptureOptions,
        title: str,
    ) -> None:
        self.steps: list[GenerationStep] = []
        self.most = settings.max_new_tokens
        self._loaded = loaded
        self._encoder = encoder
        self._batch = batch
        self._settings = settings
        self._options = options
        self._title = title
        self._growth = GrowingAttention(loaded, batch, options)
        self._ids: list[int] = batch.arguments["input_ids"][0].tolist()
        self._prompt = len(self._ids)
        self._read = ReadSteps()
        self._probabilities: torch.Tensor | None = None
        self._ended = self._stopped = False
        self._record: AttentionRecord | None = None
        self._so_far: tuple[int, AttentionRecord] | None = None
        self._error: BaseException | None = None
        self._running = True
        self._began = self._latest = 0.0
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], object]] = []
        # Torch knows in each thread apart whether it is on.
        self._autocast = _autocast_of(loaded.model.device.type)
        # A notebook's kernel finds in the context which cell its messages belong to.
        run = partial(contextvars.copy_context().run, self._run)
        self._thread = threading.Thread(target=run, name="attnviz generation", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether more tokens may come."""
        return self._running

    @property
    def stopped(self) -> bool:
        """Whether it was stopped before its end."""
        return self._stopped

    @property
    def error(self) -> BaseException | None:
        """What went wrong; None where nothing did."""
        return self._error

    @property
    def count(self) -> int:
        """How many tokens the record has by now: those that the model has read."""
        if self._record is not None:
            return len(self._ids)
        return self._prompt + max(0, len(self.steps) - 1)

    @property
    def tokens_per_second(self) -> float | None:
        """How fast tokens have come since the first one; None before the second."""
        elapsed = self._latest - self._began
        return (len(self.steps) - 1) / elapsed if elapsed > 0 else None

    @property
    def record(self) -> AttentionRecord:
        """The record: of the tokens that were read so far, and in the end of all.

        Raises
        ------
        Exception
            What the model raised.

        Examples
        --------
        >>> generation.record    # doctest: +SKIP
        """
        if self._error is not None:
            raise self._error
        return self.record_of(self.count)

    def wait(self) -> AttentionRecord:
        """Wait until no more tokens come; an interrupt stops the generation.

        Returns
        -------
        AttentionRecord
            That of ``attnviz.extract`` with the same arguments; of the tokens that came, where the
            generation was stopped.

        Raises
        ------
        Exception
            What the model raised.

        Examples
        --------
        >>> record = generation.wait()    # doctest: +SKIP
        """
        try:
            with self._changed:
                while self._running:
                    # For a moment each, so that an interrupt is heard on all systems.
                    self._changed.wait(0.5)
        except BaseException:
            self.stop()
            raise
        return self.record

    def stop(self) -> None:
        """End the generation behind the token that is being produced; what is there stays.

        Examples
        --------
        >>> generation.stop()    # doctest: +SKIP
        """
        if self._running:
            self._stopped = True

    def listen(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Have `listener` called in the generation's thread after each token and at the end.

        Parameters
        ----------
        listener : callable
            Takes nothing; what it raises is left alone.

        Returns
        -------
        callable
            Ends that.

        Examples
        --------
        >>> end = generation.listen(lambda: print(generation.count))    # doctest: +SKIP
        """
        self._listeners.append(listener)

        def end() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return end

    @property
    def heard(self) -> bool:
        """Whether someone listens: a view, an ``async for``, or who called `listen`."""
        return bool(self._listeners)

    def wait_for_prompt(self) -> None:
        """Wait until the prompt is read and the first token has come; raise what went wrong.

        Examples
        --------
        >>> generation.wait_for_prompt()    # doctest: +SKIP
        """
        try:
            with self._changed:
                while self._running and not self.steps:
                    self._changed.wait(0.5)
        except BaseException:
            self.stop()
            raise
        if self._error is not None:
            raise self._error

    def record_of(self, count: int) -> AttentionRecord:
        """The record of the first tokens of those that were read; any thread may ask for it.

        Parameters
        ----------
        count : int
            How many tokens: those of the prompt at least, and `count` at most.

        Returns
        -------
        AttentionRecord
            With the token that the last of them predicted, where one came.

        Examples
        --------
        >>> generation.record_of(generation.count)    # doctest: +SKIP
        """
        if not self._prompt <= count <= self.count:
            raise ValueError(
                f"count={count!r}: the prompt has {self._prompt} tokens, and {self.count} were read"
            )
        if self._record is not None and count >= len(self._ids):
            return self._record
        known = self._so_far
        if known is None or known[0] != count:
            known = self._so_far = (count, self._made(count))
        return known[1]

    def row(self, stack: str, layer: int, count: int) -> NDArray[np.float32]:
        """Weights of the last of so many tokens.

        Parameters
        ----------
        stack : str
            Name of the stack.
        layer : int
            The model's number of the layer.
        count : int
            How many tokens.

        Returns
        -------
        ndarray
            float32, (heads that are kept, keys).

        Examples
        --------
        >>> generation.row("self", 0, generation.count)    # doctest: +SKIP
        """
        if self._record is None:
            return self._growth.row(stack, layer, count)
        found = self._record.stack(stack).weights(
            layer=layer, rows=slice(count - 1, count), columns=slice(0, count)
        )
        return found[:, 0]

    def kept_heads(self, stack: str, layer: int) -> tuple[int, ...]:
        """Numbers of a layer's heads whose weights are known.

        Parameters
        ----------
        stack : str
            Name of the stack.
        layer : int
            The model's number of the layer.

        Returns
        -------
        tuple of int
            Ascending, as in `row`.

        Examples
        --------
        >>> generation.kept_heads("self", 0)    # doctest: +SKIP
        (0, 1, 2, 3)
        """
        return self._growth.kept_heads(stack, layer)

    def __iter__(self) -> Iterator[GenerationStep]:
        given = 0
        try:
            while True:
                with self._changed:
                    while self._running and given == len(self.steps):
                        self._changed.wait(0.5)
                if given == len(self.steps):
                    break
                yield self.steps[given]
                given += 1
        finally:
            self.stop()
        if self._error is not None:
            raise self._error

    def __aiter__(self) -> AsyncIterator[GenerationStep]:
        return _AsyncSteps(self)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "ended"
        state = "running" if self._running else "failed" if self._error is not None else state
        return f"<LiveGeneration of {self._title}: {len(self.steps)} tokens, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a generation that runs, and its steps, cannot be copied or pickled; take "
            "generation.wait(), its record, and a step's text, token and weights(...)"
        )

    # What follows runs in the generation's thread.

    def _run(self) -> None:
        record: AttentionRecord | None = None
        error: BaseException | None = None
        try:
            with self._autocast:
                generated = generate_text(
                    self._loaded.model,
                    self._batch,
                    self._settings,
                    progress=False,
                    watch=self._growth.watch,
                    follower=Follower(self._predicted, self._chosen, self._read_last),
                )
                record = self._whole(generated)
        except BaseException as raised:  # noqa: BLE001
            # Raised where the record is asked for.
            error = raised
        self._growth.release()
        with self._changed:
            self._record, self._error, self._running = record, error, False
            self._changed.notify_all()
        self._tell()

    def _predicted(self, probabilities: torch.Tensor) -> None:
        """Take the probabilities of a step."""
        if not self._ended:
            self._probabilities = probabilities

    def _chosen(self, ids: torch.Tensor) -> bool:
        """Take up the token that came; True where the reader has stopped the generation."""
        probabilities, self._probabilities = self._probabilities, None
        # A step that tries several tokens, or runs the model twice, has read too many.
        once = self._growth.num_read == len(self._ids) and len(ids) == len(self._ids) + 1
        if probabilities is None or not once:
            raise NotImplementedError(
                f"live: with these settings {type(self._loaded.model).__name__} does not read one "
                f"token in each step; {OTHERWISE}"
            )
        token = int(ids[-1])
        self._read.add(probabilities, token)
        known = self._read.candidates[-1]
        texts = token_texts(
            [token, *(other for other, _ in known)], self._encoder.tokenizer(needed=False)
        )
        step = GenerationStep(
            len(self._ids),
            Candidate(texts[0], token, self._read.came[-1]),
            tuple(
                Candidate(text, other, value)
                for text, (other, value) in zip(texts[1:], known, strict=True)
            ),
            self._row_of_step,
        )
        self._latest = time.perf_counter()
        self._began = self._began or self._latest
        with self._changed:
            self._ids.append(token)
            self.steps.append(step)
            self._changed.notify_all()
        self._tell()
        return self._stopped

    def _read_last(self, ids: torch.Tensor) -> None:
        """Have the last token read, whose row the record has too."""
        self._ended = True
        if self._growth.num_read < len(ids):
            # Where it is not known how, the whole text is read in one forward.
            with suppress(NotImplementedError):
                self._growth.read_last(ids[-1])

    def _tell(self) -> None:
        for listener in list(self._listeners):
            # A notebook that is gone ends no generation.
            with suppress(Exception):
                listener()

    def _whole(self, generated: Generated) -> AttentionRecord:
        if self._growth.num_read == len(self._ids):
            self._growth.check_finite()
            return self._made(len(self._ids))
        self._encoder.add_generated(self._batch, generated, self._settings.method)
        forward = run_forward(
            self._loaded, self._batch, encoder_decoder=False, options=self._options
        )
        [record] = records_of_forward(
            self._loaded,
            self._encoder,
            self._batch,
            forward,
            title=self._title,
            options=self._options,
        )
        return record

    def _made(self, count: int) -> AttentionRecord:
        """A record of the first tokens; the token that the last of them predicted is known."""
        given = self._batch
        batch = replace(
            given,
            arguments=dict(given.arguments),
            sequences=dict(given.sequences),
            tokens={name: list(each) for name, each in given.tokens.items()},
            notes=list(given.notes),
        )
        ids = torch.tensor(self._ids[: count + 1])
        if count > self._prompt:
            generated = Generated(ids[:count], self._prompt)
            self._encoder.add_generated(batch, generated, self._settings.method)
        first = len(given.tokens["input"][0]) - 1
        batch.produced = [ProducedText("input", first, tuple(ids[self._prompt :].tolist()))]
        forward = self._growth.forward(count, self._read)
        [record] = records_of_forward(
            self._loaded, self._encoder, batch, forward, title=self._title, options=self._options
        )
        return record

    def _row_of_step(
        self, stack: str | None, layer: int, head: int | None, count: int
    ) -> NDArray[np.float32]:
        name = next(iter(self._growth.stacks)) if stack is None else stack
        layers = self._growth.stacks
        if name not in layers:
            raise KeyError(f"stack={stack!r}: tokens come in the stacks {', '.join(layers)}")
        number = from_end(layer, layers[name])
        if number not in layers[name]:
            raise IndexError(f"layer={layer!r}: stack {name!r} has layers {spans(layers[name])}")
        rows = self.row(name, number, count)
        return rows if head is None else rows[self._growth.head_index(name, number, head)]


class _AsyncSteps:
    """Steps for one ``async for``, which stops the generation where it is left.

    An asynchronous generator would hear of that in a later turn of the event loop, and not while
    `LiveGeneration.wait` holds the loop.
    """

    def __init__(self, generation: LiveGeneration) -> None:
        self._generation = generation
        self._given = 0
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        self._changed = changed
        # It must not hold these steps: what lets go of them ends it.
        self._end = generation.listen(lambda: loop.call_soon_threadsafe(changed.set))

    def __aiter__(self) -> _AsyncSteps:
        return self

    async def __anext__(self) -> GenerationStep:
        generation = self._generation
        try:
            while True:
                self._changed.clear()
                running = generation.running
                if self._given < len(generation.steps):
                    self._given += 1
                    return generation.steps[self._given - 1]
                if not running:
                    break
                await self._changed.wait()
        except BaseException:
            self._leave()
            raise
        self._leave()
        if generation.error is not None:
            raise generation.error
        raise StopAsyncIteration

    def _leave(self) -> None:
        self._end()
        self._generation.stop()

    def __del__(self) -> None:
        # Where no loop runs, nothing was begun.
        if hasattr(self, "_end"):
            self._leave()


def generate_live(
    model: Any,
    inputs: Any,
    *,
    generate: int | Mapping[str, Any] | GenerationConfig,
    tokenizer: Any = None,
    processor: Any = None,
    truncation: bool | int = False,
    name: str | None = None,
    layers: Layers = None,
    heads: Heads = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = "cpu",
) -> LiveGeneration:
    """Let a model produce a text, and see each token with its attention as it comes.

    The model generates in a thread, with its own ``generate``; nothing runs twice. The record in
    the end is that of ``attnviz.extract(model, inputs, generate=...)``. Sampling follows torch's
    seed, as long as nothing else draws random numbers meanwhile. The model may be used by others
    while it generates: what they compute is not taken for a step.

    Parameters
    ----------
    model : PreTrainedModel, str, PathLike or Pipeline
        A decoder-only transformers model, a hub id, a folder, or a pipeline.
    inputs : object
        One prompt: a text, chat messages, ids, or what else `attnviz.extract` takes.
    generate : int, mapping or GenerationConfig
        How many tokens at most, each the likeliest; or arguments of the model's own ``generate``.
    tokenizer, processor : object, optional
        Found beside the model's weights by default.
    truncation : bool or int, default False
        Cut a prompt that is too long; see `attnviz.extract`.
    name : str, optional
        Title of every picture; by default the last part of the model's hub id or folder.
    layers, heads, dtype, device : optional
        What is kept of the model's attention, how and where; see `attnviz.extract`.

    Returns
    -------
    LiveGeneration
        It has begun; ``async for`` and ``for`` give its steps, `LiveGeneration.wait` its record.

    Raises
    ------
    TypeError
        If an argument is of a kind that cannot be read.
    ValueError
        If an argument does not fit the model, or several prompts are given.
    MemoryError
        If the queries and keys of that many tokens would exceed what is free.
    NotImplementedError
        If the steps cannot be read as they come: a search with beams, an assistant model or
        ``prompt_lookup_num_tokens``, ``guidance_scale``, a cache of fixed size, an encoder-decoder
        model, a model whose heads are divided over processes. Errors of the model itself are raised
        by the loop, by `LiveGeneration.wait` and by `LiveGeneration.record`.

    Examples
    --------
    >>> async for step in attnviz.generate_live(model, "the cat", generate=3):    # doctest: +SKIP
    ...     print(step.text, step.weights(layer=0, head=0).argmax())
    """
    loaded = load(model, tokenizer, processor)
    settings = read_generation_settings(generate, loaded.model)
    _check_steps(loaded, settings)
    encoder = Encoder(loaded, truncation=read_truncation(truncation))
    options = read_capture_options(layers, heads, dtype, device)
    examples, several = examples_of(inputs)
    batch = None
    if not several:
        batch = encoder.encode(examples[0], generating=True, to_come=settings.max_new_tokens or 1)
    if batch is None or batch.size != 1:
        count = len(examples) if batch is None else batch.size
        raise ValueError(
            f"inputs holds {count} prompts, and one generation goes on with one: begin one for each"
        )
    [batch] = split_examples(batch)
    if "input_ids" not in batch.arguments or "input" not in batch.tokens:
        raise NotImplementedError(f"live: the prompt is given without ids (input_ids); {OTHERWISE}")
    check_capture(loaded, batch, settings.longest, encoder_decoder=False, options=options)
    title = name or name_of(loaded.model)
    return LiveGeneration(loaded, encoder, batch, settings, options=options, title=title)


def _autocast_of(device: str) -> AbstractContextManager[object]:
    """What has another thread run with this thread's autocast, and leave it once more."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(
        device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)
    )


def _check_steps(loaded: Loaded, settings: GenerationSettings) -> None:
    """Refuse what does not produce one token of one text a step."""
    model = loaded.model
    kind = type(model).__name__
    why = None
    if getattr(model.config, "is_encoder_decoder", False):
        why = f"{kind} has an encoder beside its decoder"
    elif settings.num_beams > 1:
        why = f"a search with num_beams={settings.num_beams} follows several answers at once"
    elif settings.more_a_step is not None:
        why = f"with {settings.more_a_step} a step reads more than one token"
    elif loaded.processes is not None:
        why = f"the heads of {kind} are divided over processes"
    elif family_of(model.config).unmasked_with_cache:
        why = f"{kind} masks its text in another way while it generates"
    if why is not None:
        raise NotImplementedError(
            f"live: {why}, and steps cannot be read as they come; {OTHERWISE}"
        )
