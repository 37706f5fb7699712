"""What large documents cost everyone else: reads of a job while OCR reads one scan, and then ten at once.

`python -m bench.documents` runs it alone. It needs the services (`make setup` installs them).
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pypdfium2
import uvloop

from bench.end_to_end import Numbers, Server, outputs_of, reading, serving
from bench.measure import percentile, show
from bench.transitions import envelope
from bench.wire import Connection

SCAN = Path(__file__).parents[1] / "examples" / "scan.pdf"
DOCUMENTS, PAGES = 10, 10


async def measure(data: Path, pages: int = PAGES, seconds: float = 5.0) -> Numbers:
    """Reads while nothing else happens, and while ten documents are read; CPU of the services."""
    outputs = outputs_of(data)
    outputs.mkdir(parents=True)
    document = outputs / "large.pdf"
    _write_scan(document, pages)
    roots = {"LUCIUS_INPUT_ROOTS": str(outputs)}
    async with serving(data, packaged=True, environ=roots) as server:
        await _one(server, document, pages=1)
        async with reading(server) as quiet:
            await asyncio.sleep(seconds)
        alone = await _alone(server, document)
        started, before = time.perf_counter(), server.cpu()
        async with reading(server) as busy:
            await asyncio.gather(*(_one(server, document) for _ in range(DOCUMENTS)))
        took = time.perf_counter() - started
        cores_in_use = (server.cpu() - before) / took
    return {
        **alone,
        "pages_per_s": DOCUMENTS * pages / took,
        "cores_in_use": cores_in_use,
        "quiet_read_p50_ms": percentile(quiet, 0.5) * 1000,
        "quiet_read_p99_ms": percentile(quiet, 0.99) * 1000,
        "read_p50_ms": percentile(busy, 0.5) * 1000,
        "read_p99_ms": percentile(busy, 0.99) * 1000,
        "reads": len(busy),
    }


def _write_scan(path: Path, pages: int) -> None:
    made, scan = pypdfium2.PdfDocument.new(), pypdfium2.PdfDocument(SCAN)
    while len(made) < pages:
        made.import_pages(scan, [0])
    made.save(path)


async def _alone(server: Server, document: Path) -> Numbers:
    """One document, and nothing else: whether its pages use all cores."""
    started, before = time.perf_counter(), server.cpu()
    async with reading(server) as reads:
        await _one(server, document)
    took = time.perf_counter() - started
    return {
        "alone_cores_in_use": (server.cpu() - before) / took,
        "alone_seconds": took,
        "alone_read_p50_ms": percentile(reads, 0.5) * 1000,
        "alone_read_p99_ms": percentile(reads, 0.99) * 1000,
    }


_numbers = iter(range(5_000_000, 6_000_000))


async def _one(server: Server, document: Path, pages: int | None = None) -> None:
    """Have one document read, and wait for its end."""
    number = next(_numbers)
    payload: dict[str, Any] = {} if pages is None else {"pages": f"1-{pages}"}
    body = envelope(number, f"t{number % 16}") | {
        "request_type": "OCR",
        "payload": payload,
        "input_ref": document.as_uri(),
        "output_ref": (document.parent / f"{number}.txt").as_uri(),
    }
    connection = await Connection.open(server.port)
    status, answer = await connection.post("/v1/orchestrate", body)
    assert status == 202, answer
    while True:
        status, job = await connection.get(f"/v1/jobs/{answer['jobId']}?wait_seconds=30")
        assert status == 200, job
        if job["completed_at"]:
            break
    assert job["state"] == "SUCCEEDED", job
    await connection.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lucius-bench-") as folder:
        found = uvloop.run(measure(Path(folder) / "documents", *map(int, sys.argv[1:2])))
    show("Ten scans at once", [{"measure": n, "value": v} for n, v in found.items()])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
