"""Views in experiment trackers: written by their own packages, and drawn in Trackio's interface.

The trackers are installed apart from what other tests need (`make .hosts/installed`); the process
that logs has them behind all other packages.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import attnviz
from browser.chromium import TIMEOUT
from browser.test_web_pages import PYTHON, frame_of

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

LOG = """
import sys
sys.path.append(sys.argv[1])
import mlflow, trackio
from torch.utils.tensorboard import SummaryWriter
import attnviz as av
from attnviz.integrations import log
from attnviz.integrations.log import Entry, runs_of, write

weights = [[[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [1.0, 0.0]]]]
view = av.HeadView(av.AttentionRecord.from_weights(weights, ["<b>a", "b"], model="tiny"))
view.save("page.html")
trackio.init(project="project", name="run")
mlflow.set_tracking_uri("file:mlruns")
mlflow.start_run()
log(view, name="attention/text 0", step=3)
write(Entry("scores", step=3, metrics={"attention/previous token": 0.25}), runs_of(None))
mlflow.end_run()
trackio.finish()
with SummaryWriter("tensorboard") as writer:
    log(view, writer, name="attention", step=3)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("tensorboard").Reload()
(image,) = events.Images("attention")
print(image.step, image.width, image.height)
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each tracker wrote."""
    if not PYTHON.exists():
        pytest.fail("The trackers are not installed: run `make .hosts/installed`", pytrace=False)
    folder = tmp_path_factory.mktemp("logged")
    (packages,) = PYTHON.parents[1].glob("lib/python*/site-packages")
    answer = subprocess.run(
        [sys.executable, "-c", LOG, str(packages)],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    # Two maps side by side, each with a frame of one pixel and a gap of four.
    assert answer.stdout.splitlines()[-1] == f"3 {3 * 4 + 2 * 66} {2 * 4 + 66}"
    return folder


def _environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(Path(attnviz.__file__).parents[1]),
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "no_proxy": "*",
    }


def test_mlflow_and_trackio_hold_the_page_byte_for_byte(logged: Path) -> None:
    page = (logged / "page.html").read_bytes()
    (artifact,) = logged.glob("mlruns/*/*/artifacts/attention/text-0/step-00000003.html")
    assert artifact.read_bytes() == page
    (metric,) = logged.glob("mlruns/*/*/metrics/attention/previous token")
    assert metric.read_text().split()[1:] == ["0.25", "3"]
    (media,) = logged.glob("trackio/media/project/run/*/*.html")
    assert media.read_bytes() == page


def test_trackio_draws_the_page(logged: Path, chromium: Browser) -> None:
    log = logged / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(PYTHON.with_name("trackio")), "show", "--project", "project"],
            env={
                **_environment(logged),
                "PYTHONPATH": "",
                "BROWSER": "true",
                # Its address is to be read as soon as it is said.
                "PYTHONUNBUFFERED": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    try:
        address = None
        while address is None:
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
            address = re.search(r"launched at: (http://127\.0\.0\.1:\d+)", log.read_text())
        context.set_default_timeout(TIMEOUT)
        # Nothing leaves this machine.
        away = re.compile(r"^(?!(http|ws)://127\.0\.0\.1|about:|blob:|data:)")
        context.route(away, lambda route: route.abort())
        page = context.new_page()
        page.goto(f"{address[1]}/?project=project")
        page.get_by_text("Media & Tables", exact=True).first.click()
        root = frame_of(page).locator(".attnviz")
        expect(root).to_contain_text("<b>a")
        expect(root).to_contain_text("Layer 0, heads 0, 1.")
    finally:
        context.close()
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
