"""Test views in experiment trackers: log them with each package, open them in its interface.

The trackers are installed separately from the other test dependencies (`make .hosts/installed`).
The process that logs has them after all other packages in its import path.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import attnviz
from browser import servers
from browser.test_web_pages import PYTHON, frame_of

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]

LOG = """
import sys
sys.path.append(sys.argv[1])
import mlflow, trackio
from torch.utils.tensorboard import SummaryWriter
import attnviz as av
from attnviz.integrations import log
from attnviz.integrations.log import Entry, resolve_targets, write_entry

weights = [[[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [1.0, 0.0]]]]
view = av.HeadView(av.AttentionRecord.from_weights(weights, ["<b>a", "b"], model="tiny"))
view.save("page.html")
trackio.init(project="project", name="run")
mlflow.set_tracking_uri("file:mlruns")
mlflow.start_run()
log(view, name="attention/text 0", step=3)
scores = Entry("scores", step=3, metrics={"attention/previous token": 0.25})
write_entry(scores, resolve_targets(None))
mlflow.end_run()
trackio.finish()
with SummaryWriter("tensorboard") as writer:
    log(view, writer, name="attention", step=3)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("tensorboard").Reload()
(image,) = events.Images("attention")
print(image.step, image.width, image.height)
# Last, because it watches the packages that are imported after it.
import comet_ml
experiment = comet_ml.OfflineExperiment(
    project_name="project", offline_directory="comet", log_code=False, log_env_details=False
)
for number in range(2):
    log(view, name=f"attention/text {number}", step=3)
scores = Entry("scores", step=3, metrics={"attention/previous token": 0.25})
write_entry(scores, resolve_targets(None))
experiment.end()
for refused in (None, experiment, comet_ml):
    try:
        log(view, refused)
    except ValueError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the logs of all trackers."""
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
    # Two maps of 64 x 64 pixels side by side, with lines of 1 pixel around and between them.
    lines = answer.stdout.splitlines()
    assert f"3 {3 + 2 * 64} {2 + 64}" in lines
    # Comet silently drops what is logged after the end of a run, so attnviz raises.
    nothing, ended, module = lines[-3:]
    assert nothing.startswith("to: no run of MLflow")
    assert "no run of Comet is active, or the run has ended" in ended
    assert "no run of Comet is active, or the run has ended" in module
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
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
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


def test_comet_holds_the_page_byte_for_byte(logged: Path) -> None:
    page = (logged / "page.html").read_bytes()
    messages, files = archive_of(logged)
    assets = [
        (upload["additional_params"]["fileName"], upload["additional_params"]["step"])
        for upload in messages["file_upload"]
    ]
    assert assets == [(f"attention/text-{number}/step-00000003.html", 3) for number in range(2)]
    assert [files[upload["file_path"]] for upload in messages["file_upload"]] == [page, page]
    scores = [message["metric"] for message in messages["metric_msg"]]
    (score,) = (metric for metric in scores if metric["metricName"] == "attention/previous token")
    assert (score["metricValue"], score["step"]) == (0.25, 3)


def archive_of(folder: Path) -> tuple[dict[str, list[Any]], dict[str, bytes]]:
    """Return the messages that Comet would upload, by type, and the files that they name."""
    (path,) = (folder / "comet").glob("*.zip")
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    messages: dict[str, list[Any]] = {}
    for line in files["messages.json"].splitlines():
        message = json.loads(line)
        messages.setdefault(message["type"], []).append(message["payload"])
    return messages, files


@contextmanager
def served(command: list[str], folder: Path, ready: str) -> Iterator[str]:
    """Run a tracker's server and return its address once it prints that it is ready."""
    log = folder / f"{command[0]}.log"
    # Do not buffer the output: the address must be read as soon as it is printed.
    more = {"PYTHONPATH": "", "BROWSER": "true", "PYTHONUNBUFFERED": "1"}
    program = [str(PYTHON.with_name(command[0])), *command[1:]]
    server = servers.start(program, folder, _environment(folder) | more, log)
    try:
        address = None
        while address is None:
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
            address = re.search(ready, log.read_text())
        yield address[1]
    finally:
        servers.stop(server)


def is_drawn(root: Locator) -> None:
    expect(root).to_contain_text("<b>a")
    expect(root).to_contain_text("Layer 0, heads 0, 1.")


def test_comet_draws_each_page_in_its_html_tab(
    logged: Path, tmp_path: Path, local_page: Page
) -> None:
    messages, _ = archive_of(logged)
    # Comet's HTML tab is one document with everything that was logged to it.
    html = tmp_path / "tab.html"
    html.write_text("\n".join(document["html"] for document in messages["html"]), encoding="utf-8")
    local_page.goto(html.as_uri())
    for number in range(2):
        frame = local_page.get_by_title(f"attention/text {number}, step 3")
        frame.scroll_into_view_if_needed()
        is_drawn(frame.content_frame.locator(".attnviz"))


def test_trackio_draws_the_page(logged: Path, local_page: Page) -> None:
    command = ["trackio", "show", "--project", "project"]
    with served(command, logged, r"launched at: (http://127\.0\.0\.1:\d+)") as address:
        local_page.goto(f"{address}/?project=project")
        local_page.get_by_text("Media & Tables", exact=True).first.click()
        is_drawn(frame_of(local_page).locator(".attnviz"))


def test_mlflow_draws_the_page(logged: Path, local_page: Page) -> None:
    (artifact,) = logged.glob("mlruns/*/*/artifacts/attention/text-0/*.html")
    experiment, run = artifact.relative_to(logged).parts[1:3]
    file = "attention/text-0/step-00000003.html"
    store = ["--backend-store-uri", "file:mlruns", "--workers", "1"]
    command = ["mlflow", "server", *store, "--host", "127.0.0.1"]
    command += ["--port", str(servers.free_port())]
    with served(command, logged, r"running on (http://127\.0\.0\.1:\d+)") as address:
        local_page.goto(f"{address}/#/experiments/{experiment}/runs/{run}/artifacts/{file}")
        is_drawn(frame_of(local_page).locator(".attnviz"))
        # MLflow shows a blob URL in a sandboxed frame without an origin.
        assert local_page.locator("iframe").get_attribute("sandbox") == "allow-scripts"
