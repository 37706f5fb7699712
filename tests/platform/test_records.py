"""What the records in memory forget. What all stores do is in `conformance/test_records.py`."""

from lucius.platform import MemoryRecords
from lucius.platform.messages import Directive, parse_directive
from lucius.platform.records import MINE, Begun
from tests.virtual import VirtualLoop, run_virtually

RESULT = {"status": "SUCCEEDED", "output_ref": "mem://x"}


def _directive(attempt_no: int = 1) -> Directive:
    return parse_directive(
        {
            "jobId": "job_1",
            "stepId": "ocr",
            "tenant_id": "tenant_a",
            "step_type": "OCR",
            "attempt_no": attempt_no,
            "lease_id": f"lease_{attempt_no}",
            "workspace_ref": "mem://job_1/",
            "lane": 4,
            "lease_seconds": 60.0,
        }
    )


def test_memory_forgets_the_oldest_results_and_no_more() -> None:
    async def main(loop: VirtualLoop) -> None:
        records = MemoryRecords(kept=2)
        for attempt in (1, 2, 3):
            await records.begin(_directive(attempt), "a")
            await records.finish(_directive(attempt), RESULT)
        assert await records.begin(_directive(1), "a") == MINE
        assert await records.begin(_directive(3), "a") == Begun(False, RESULT)

    run_virtually(main)
