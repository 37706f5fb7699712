"""What is released: the same bytes of the same sources, and a product that needs no clone."""

import os
import subprocess
import tarfile
import time
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from lucius import __version__
from tests.cli.up import running
from tests.wheel.conftest import EPOCH, ROOT, Installed
from tools.dist import build

pytestmark = pytest.mark.xdist_group("wheel")
BYTES = 2_000_000


def tracked() -> set[str]:
    words = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run([*words, "src"], capture_output=True, text=True, check=True)
    return {each for each in found.stdout.splitlines() if (ROOT / each).exists()}


def test_it_holds_every_file_of_the_package_and_no_other(built: tuple[Path, Path]) -> None:
    sdist, wheel = built
    ours = {each.removeprefix("src/") for each in tracked()}
    with zipfile.ZipFile(wheel) as packed:
        assert {each for each in packed.namelist() if ".dist-info/" not in each} == ours
    with tarfile.open(sdist) as archive:
        files = {each.name.partition("/")[2] for each in archive if each.isfile()}
    assert {each for each in files if each.startswith("src/lucius/")} == tracked()
    assert max(wheel.stat().st_size, sdist.stat().st_size) < BYTES


def test_the_same_sources_give_the_same_bytes(
    built: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another folder, at another time, by another user's defaults."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    old = os.umask(0o077)
    try:
        again = build(tmp_path / "a longer name", EPOCH)
    finally:
        os.umask(old)
    assert [each.name for each in again] == [each.name for each in built]
    assert [each.read_bytes() for each in again] == [each.read_bytes() for each in built]
    with tarfile.open(again[0]) as sdist, zipfile.ZipFile(again[1]) as wheel:
        assert {each.mtime for each in sdist} == {EPOCH}
        assert {each.date_time for each in wheel.infolist()} == {time.gmtime(EPOCH)[:6]}


def test_it_says_what_it_is(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as packed:
        text = packed.read(f"lucius-{__version__}.dist-info/METADATA").decode()
    about = message_from_string(text)
    assert (about["Name"], about["Version"], about["Author"]) == (
        "lucius",
        __version__,
        "LUCIUS maintainers",
    )
    assert about["Summary"]
    assert about.get_payload().startswith("# LUCIUS")  # type: ignore[union-attr]
    extras = {"services", "azure", "nats", "temporal", "s3", "gcs", "all"}
    assert extras <= set(about.get_all("Provides-Extra", []))
    python = {"3.11", "3.12", "3.13"}
    named = {each.rpartition(" ")[2] for each in about.get_all("Classifier", [])}
    assert python <= named


def test_the_demo_shows_question_answer_and_page_of_both_documents(installed: Installed) -> None:
    shown = installed.run("lucius", "demo")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("job IN_PROGRESS->SUCCEEDED") == 2
    assert shown.stdout.endswith("what became of it, attempt by attempt\n"), "what to try next"
    scan, text = shown.stdout.split("\nexamples/scan.pdf\n")[1].split("\nexamples/sample.pdf\n")
    for said in ("What will the repair of the lens cost?", "2,150 crowns", "page 2, passage 2"):
        assert said in scan
    for said in ("How much does the Harbour Board pay a year?", "18,400 crowns", "page 1"):
        assert said in text


def test_a_server_runs_a_job_and_serves_its_console(installed: Installed) -> None:
    (installed.folder / "note.txt").write_text("The lamp burns evenly.")
    with running(installed.up()) as server:
        words = ["--url", server.url, "--type", "OCR->EMBEDDING", "--input", "note.txt"]
        done = installed.run("lucius", "submit", *words, "--wait")
        assert done.returncode == 0, done.stderr
        asked = f"import urllib.request as u; print(u.urlopen('{server.url}/').read().decode())"
        page = installed.run("python", "-c", asked)
        assert "console.css" in page.stdout, page.stderr
    assert installed.run("lucius", "verify").returncode == 0


def test_a_new_project_passes_its_own_tests_untouched(installed: Installed) -> None:
    """The last of them is `lucius certify`."""
    made = installed.run("lucius", "service", "new", "page-counter", "--step-type", "PAGE_COUNT")
    assert made.returncode == 0, made.stderr
    words = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = installed.run(*words, folder="page-counter")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert "8 passed" in done.stdout


@pytest.mark.parametrize(
    ("setting", "extra"),
    [
        ("LUCIUS_BUS_BACKEND=nats", "nats"),
        ("LUCIUS_APPCONFIG_CONNECTION=Endpoint=http://127.0.0.1:1;Id=i;Secret=cw==", "azure"),
        ("LUCIUS_TEMPORAL_ENABLED=true", "temporal"),
        ("LUCIUS_WORKSPACE_URL=s3://bucket/folder", "s3"),
    ],
)
def test_a_backend_without_its_library_names_the_command_that_installs_it(
    installed: Installed, setting: str, extra: str
) -> None:
    name, _, value = setting.partition("=")
    done = installed.run("lucius", "up", "--port", "0", "--data", extra, **{name: value})
    assert done.returncode == 1
    assert f"pip install 'lucius[{extra}]'" in done.stderr.splitlines()[-1], done.stderr
    assert "Traceback" not in done.stderr
