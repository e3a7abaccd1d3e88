"""Head statistics from actors of a local Ray equal those of one process."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import attnviz as av
from attnviz.corpus import RayEngine, on_ray
from unit.corpus.same_statistics import assert_same_statistics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    # Ray leaves processes and files open until Python exits.
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]
ray = pytest.importorskip("ray")

WORDS = "the cat and the dog met the cat and the bird that sang".split()
TEXTS = [" ".join(WORDS[start : start + 4 + start % 3]) for start in range(6)] * 4 + [""]
ENGINE = RayEngine(num_actors=2, texts_per_batch=4)
# An actor takes ten CPU seconds to start, so most tests use only one.
ONE = RayEngine(num_actors=1, texts_per_batch=4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        # Ignore the warnings of the processes that Ray starts.
        patch.setenv("PYTHONWARNINGS", "ignore")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        for tries_left in (2, 1, 0):
            try:
                ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
                break
            except Exception:
                # On a busy machine, Ray may not start within its limit of 30 s. Then try again.
                ray.shutdown()
                if not tries_left:
                    raise
        yield ray
        ray.shutdown()
        # Free Ray's objects here, where warnings about them are ignored.
        gc.collect()


def statistics(decoder: tuple[Any, Any], texts: Any, **options: Any) -> av.HeadStatistics:
    # Rounding depends on the batch, so read one text at a time.
    return av.head_statistics(
        decoder[0], texts, tokenizer=decoder[1], batch_size=1, progress=False, **options
    )


def alive() -> list[int]:
    """Return the process ids of all actors of Ray."""
    below = psutil.Process().children(recursive=True)
    pids = []
    for process in below:
        with suppress(psutil.Error):
            if "ray::_Actor" in " ".join(process.cmdline()):
                pids.append(process.pid)
    return pids


def wait_for(condition: Any, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)


def test_a_lost_actor_changes_nothing(
    cluster: Any, decoder: tuple[Any, Any], tmp_path: Path
) -> None:
    """The process of one actor is killed. The statistics must equal those of a single process."""
    marker = tmp_path / "killed"
    model, tokenizer = decoder

    class Killed(type(model)):  # type: ignore[misc]
        """A model that kills its own process in its sixth forward, unless `marker` exists."""

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            calls = getattr(self, "calls", 0) + 1
            self.calls = calls
            if calls == 6 and not marker.exists():
                marker.write_text("now")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().forward(*args, **kwargs)

    def load() -> Any:
        model.__class__ = Killed
        return model

    result = av.head_statistics(
        load,
        TEXTS,
        tokenizer=tokenizer,
        name="demo",
        batch_size=1,
        engine=ENGINE,
        progress=False,
    )
    assert marker.exists()
    assert (result.texts, result.num_skipped) == (24, 1)
    alone = statistics(decoder, TEXTS, name="demo")
    assert_same_statistics(result, alone)


def test_datasets_of_ray(
    cluster: Any, decoder: tuple[Any, Any], tmp_path: Path, own_measures: None
) -> None:
    """Ray reads a table from Parquet and JSONL files.

    The dataset from Parquet has the texts of the table. The dataset from JSONL gives the statistics
    of the table.
    """
    import pandas as pd

    table = pd.DataFrame({"body": TEXTS, "half": ["first"] * 12 + ["second"] * 13})
    table.to_parquet(tmp_path / "texts.parquet")
    table.to_json(tmp_path / "texts.jsonl", orient="records", lines=True)
    # Actors must also know measures that are registered in this process.
    av.measure("largest weight", kind="rows")(lambda weights: weights.max(axis=-1))
    alone = statistics(decoder, table, column="body", columns=["half"])
    assert "largest weight" in alone.stack().score_names
    dataset = cluster.data.read_parquet(str(tmp_path / "texts.parquet"))
    assert on_ray.to_table(dataset)["body"].tolist() == TEXTS
    dataset = cluster.data.read_json(str(tmp_path / "texts.jsonl"), lines=True)
    result = statistics(decoder, dataset, column="body", columns=["half"], engine=ONE)
    assert_same_statistics(result, alone)
    with pytest.raises(ValueError, match="column='text': the table has the columns"):
        statistics(decoder, dataset)


def test_errors_in_texts_and_models_are_named(cluster: Any, decoder: tuple[Any, Any]) -> None:
    broken: list[Any] = [*TEXTS[:7], 3.5, *TEXTS[8:]]
    with pytest.raises(TypeError, match=r"texts\[7\]"):
        statistics(decoder, broken, engine=ONE)
    with pytest.raises(OSError, match="'/no/such/model' cannot be loaded"):
        av.head_statistics("/no/such/model", TEXTS, engine=ONE, progress=False)
    with pytest.raises(
        ValueError, match="engine: an actor with num_cpus=1 and num_gpus=1 does not"
    ):
        statistics(decoder, TEXTS, engine=RayEngine(num_gpus=1))
    wait_for(lambda: not alive())


@pytest.mark.usefixtures("interrupts_raised")
def test_an_interrupt_leaves_no_actors(
    cluster: Any, decoder: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = on_ray.actor_results

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        for number, result in enumerate(real(*args, **kwargs)):
            if number == 2:
                signal.raise_signal(signal.SIGINT)
            yield result

    with monkeypatch.context() as patch:
        patch.setattr("attnviz.corpus.head_statistics.actor_results", interrupted)
        assert threading.current_thread() is threading.main_thread()
        with pytest.raises(KeyboardInterrupt):
            statistics(decoder, TEXTS, engine=ONE)
    wait_for(lambda: not alive())
