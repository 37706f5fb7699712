"""The reports of a certificate: for people, as JSON and as JUnit."""

import json
from xml.etree import ElementTree

from lucius.certificate.certification import BROKEN, KEPT, SKIPPED, Grade
from lucius.certificate.checks import CHECKS
from lucius.certificate.examined import Examined
from lucius.certificate.report import as_document, as_junit, explained, kept, line, summary

SHOUT = Examined("shout", "SHOUT")
FINDINGS = [
    Grade(CHECKS[0], KEPT, "", 0.5),
    Grade(CHECKS[1], BROKEN, "two <lines>\n\x1b[31mof it", 1.0),
    Grade(CHECKS[2], SKIPPED, "no outputs", 0.0),
]


def test_people_read_what_the_contract_says_what_was_seen_and_what_to_do() -> None:
    (text,) = explained(FINDINGS)
    assert CHECKS[1].promise in text
    assert "two <lines>" in text
    assert CHECKS[1].remedy in text
    assert "\x1b" not in text, "a service may say anything, and a terminal must not obey it"
    assert [line(each)[:4] for each in FINDINGS] == ["ok  ", "FAIL", "skip"]
    assert line(FINDINGS[2]).endswith("no outputs")
    assert summary(FINDINGS, 12) == "1 kept, 1 broken, 1 skipped, in 12 s"
    assert not kept(FINDINGS)
    assert kept([FINDINGS[0], FINDINGS[2]]), "what says nothing about a service breaks nothing"


def test_programs_read_the_same() -> None:
    document = as_document(SHOUT, FINDINGS, 12)
    assert (document["service"], document["kept"]) == ("shout", False)
    assert [each["outcome"] for each in document["checks"]] == [KEPT, BROKEN, SKIPPED]
    assert document["checks"][1]["remedy"] == CHECKS[1].remedy


def test_whatever_a_service_writes_the_reports_can_be_read() -> None:
    hostile = "\x00\ufffe\uffff\udc80 ]]> <!-- &amp; \x85 \x1b[2J \u202e"
    findings = [Grade(CHECKS[0], BROKEN, hostile, 0.1), Grade(CHECKS[1], SKIPPED, hostile, 0.1)]
    named = Examined(f"shout{hostile}", "SHOUT")
    suite = ElementTree.fromstring(as_junit(named, findings, 1).encode())
    failure, skipped = suite.find("testcase/failure"), suite.find("testcase/skipped")
    assert failure is not None
    assert "]]> <!-- &amp;" in str(failure.text)
    assert skipped is not None
    assert "\x1b" not in str(skipped.get("message"))
    read = json.loads(json.dumps(as_document(named, findings, 1)))
    assert read["checks"][0]["seen"] == hostile


def test_build_servers_read_the_same() -> None:
    suite = ElementTree.fromstring(as_junit(SHOUT, FINDINGS, 12).encode())
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.text is not None
    assert CHECKS[1].remedy in failure.text
