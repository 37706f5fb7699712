"""A tracestate is passed on as it came, or not at all; what is too long loses whole members."""

import pytest

from lucius.core.ids import MAX_LENGTH, MAX_MEMBERS, is_traceparent, tracestate


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("rojo=00f067aa0ba902b7", "rojo=00f067aa0ba902b7"),
        ("rojo=1,congo=t61rcWkgMzE", "rojo=1,congo=t61rcWkgMzE"),
        (" rojo=1 ,\tcongo=2,,", "rojo=1,congo=2"),
        ("fw529a3039@dt=FfAxR4M;x,4a@b=!~", "fw529a3039@dt=FfAxR4M;x,4a@b=!~"),
        ("a=b c", "a=b c"),
        (f"{'k' * 256}={'v' * 200}", f"{'k' * 256}={'v' * 200}"),
    ],
)
def test_what_is_valid_is_passed_on(given: str, passed: str) -> None:
    assert tracestate(given) == passed


@pytest.mark.parametrize(
    "given",
    [
        None,
        7,
        ["a=1"],
        "",
        " , ,",
        "a",
        "a=",
        "=1",
        "A=1",
        "1=1",
        "a=1=2",
        "a=\u00e9",
        "a=1\n",
        "a=1,b",
        "a=1,a=2",
        f"{'k' * 257}=1",
        f"a={'v' * 257}",
        "a@1=2",
        ",".join(f"k{n}=1" for n in range(MAX_MEMBERS + 1)),
        "a=1" + "," * 9000,
    ],
)
def test_what_is_not_valid_is_dropped_as_a_whole(given: object) -> None:
    assert tracestate(given) is None


def test_what_is_too_long_loses_its_large_members_first_and_then_its_last() -> None:
    large, small = f"large={'x' * 200}", [f"k{n}={'y' * 90}" for n in range(6)]
    passed = tracestate(",".join([large, *small]))
    assert passed == ",".join(small[:5]), "one had to go although the large one was gone"
    assert len(passed) <= MAX_LENGTH
    both = tracestate(",".join([large, f"b={'x' * 200}", *small[:2]]))
    assert both == ",".join([large, *small[:2]]), "of the large ones the last goes first"


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        (PARENT, True),
        (PARENT.replace("00-", "cc-", 1), True),
        (PARENT.replace("00-", "ff-", 1), False),
        (PARENT.upper(), False),
        (f"{PARENT}-more", False),
        (f"{PARENT}\n", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", False),
        ("", False),
        (None, False),
    ],
)
def test_a_traceparent_is_what_w3c_says(given: object, valid: bool) -> None:
    assert is_traceparent(given) is valid
