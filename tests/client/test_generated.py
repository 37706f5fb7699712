"""A client that others generate from the published OpenAPI document works: it submits, waits and reads."""

import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from tests.cli.up import clean_environment, up

ROOT = Path(__file__).parents[2]
GENERATOR = str(Path(sys.executable).parent / "openapi-python-client")
NO_HOOKS = "post_hooks: []\n"
"""Nothing formats what is generated: that would be work, and is no part of what is shown."""
SCRIPT = """
import sys
from datetime import datetime

from generated import Client
from generated.api.jobs import get_job, list_steps, orchestrate
from generated.models import Command

url, document = sys.argv[1:]
command = Command.from_dict(
    {
        "tenant_id": "acme",
        "request_type": "OCR",
        "input_ref": document,
        "output_ref": document + ".txt",
        "payload": {},
        "schema_version": "v1",
    }
)
with Client(base_url=url, raise_on_unexpected_status=True) as client:
    submitted = orchestrate.sync(client=client, body=command)
    assert submitted.duplicate is False
    job = get_job.sync(submitted.job_id, client=client)
    while job.completed_at is None:
        job = get_job.sync(submitted.job_id, client=client, wait_seconds=30.0)
    assert isinstance(job.completed_at, datetime)
    (step,) = list_steps.sync(job.job_id, client=client).steps
    refused = get_job.sync("job_none", client=client)
print(job.state, step.step_id, step.state, refused.code)
"""


def test_a_generated_client_submits_waits_and_reads(tmp_path: Path) -> None:
    document = tmp_path / "contract.pdf"
    shutil.copy(ROOT / "src/lucius/cli/examples/sample.pdf", document)
    with up(tmp_path) as server:
        _generate(tmp_path, server.url)
        words = [sys.executable, "-c", SCRIPT, server.url, document.as_uri()]
        said = _done(words, tmp_path)
    assert said == "SUCCEEDED ocr SUCCEEDED JOB_NOT_FOUND\n"


def _generate(folder: Path, url: str) -> None:
    """Every operation, or it fails: what the generator does not understand it warns about and leaves out."""
    (folder / "generator.yaml").write_text(NO_HOOKS)
    with urlopen(f"{url}/openapi.json", timeout=60) as answer:  # the generator waits five seconds
        (folder / "openapi.json").write_bytes(answer.read())
    words = [GENERATOR, "generate", "--path", "openapi.json", "--meta", "none"]
    words.append("--fail-on-warning")
    _done([*words, "--config", "generator.yaml", "--output-path", "generated"], folder)


def _done(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
