"""The report of a certificate: for people, as JSON and as JUnit."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from lucius.certificate.certification import BROKEN, KEPT, SKIPPED, Grade
from lucius.certificate.examined import Examined
from lucius.core.printable import printable

NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML document may hold, escaped or not."""
MARKS = {KEPT: "ok  ", BROKEN: "FAIL", SKIPPED: "skip"}


def line(finding: Grade) -> str:
    """One line for each check, as soon as it was looked at."""
    why = f": {printable(finding.seen.splitlines()[0])}" if finding.outcome == SKIPPED else ""
    return f"{MARKS[finding.outcome]}  {finding.check.name}{why}"


def explained(findings: Sequence[Grade]) -> Iterator[str]:
    """What the contract says, what was seen and what to do, for each promise that is broken."""
    for finding in findings:
        if finding.outcome == BROKEN:
            seen = "\n             ".join(map(printable, finding.seen.splitlines()))
            yield (
                f"{finding.check.name}\n  contract:  {finding.check.promise}\n"
                f"  seen:      {seen}\n  do:        {finding.check.remedy}"
            )


def kept(findings: Sequence[Grade]) -> bool:
    return not any(finding.outcome == BROKEN for finding in findings)


def summary(findings: Sequence[Grade], seconds: float) -> str:
    counts = [sum(f.outcome == outcome for f in findings) for outcome in (KEPT, BROKEN, SKIPPED)]
    return "{} kept, {} broken, {} skipped, in {:.0f} s".format(*counts, seconds)


def as_document(examined: Examined, findings: Sequence[Grade], seconds: float) -> dict[str, Any]:
    return {
        "service": examined.service,
        "step_type": examined.step_type,
        "kept": kept(findings),
        "seconds": round(seconds, 1),
        "checks": [
            {
                "name": finding.check.name,
                "outcome": finding.outcome,
                "promise": finding.check.promise,
                "seen": finding.seen,
                "remedy": finding.check.remedy if finding.outcome == BROKEN else "",
                "seconds": round(finding.seconds, 2),
            }
            for finding in findings
        ],
    }


def as_junit(examined: Examined, findings: Sequence[Grade], seconds: float) -> str:
    suite = ElementTree.Element(
        "testsuite",
        name=f"lucius certify {examined.service}",
        tests=str(len(findings)),
        failures=str(sum(f.outcome == BROKEN for f in findings)),
        skipped=str(sum(f.outcome == SKIPPED for f in findings)),
        errors="0",
        time=f"{seconds:.2f}",
    )
    for finding in findings:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"contract.{finding.check.group}",
            name=finding.check.name,
            time=f"{finding.seconds:.2f}",
        )
        if finding.outcome == SKIPPED:
            ElementTree.SubElement(case, "skipped", message=printable(finding.seen))
        elif finding.outcome == BROKEN:
            failure = ElementTree.SubElement(case, "failure", message=finding.check.promise)
            failure.text = "\n".join(explained([finding]))
    ElementTree.indent(suite)
    text = NOT_IN_XML.sub("?", ElementTree.tostring(suite, "unicode"))
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'
