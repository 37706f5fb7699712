"""Documents at https addresses: read from named places outside, within bounds, and from nowhere else."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from lucius.adapters.workspaces.https import REDIRECTS, HttpsDocuments
from lucius.app.adapters import MOST_OF_A_DOCUMENT, UnsupportedError, open_workspace
from lucius.app.settings import load_settings
from lucius.core.errors import WorkspaceError, WorkspaceRefusedError
from lucius.ports.workspace import Digest
from lucius.system.outside import GuardedBackend, guarded_transport
from tests.security.receiver import HOST, Detour, Receiver, names

ROOT = f"https://{HOST}/in/"
URI = f"{ROOT}document.pdf"
LIMIT = 1000


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    head = [f"HTTP/1.1 {status}", "Connection: close", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def redirect(place: str) -> bytes:
    return answer("302 Found", b"", f"Location: {place}")


@asynccontextmanager
async def served(
    folder: Path, *answers: bytes, roots: Sequence[str] = (ROOT,)
) -> AsyncIterator[tuple[HttpsDocuments, Receiver]]:
    async with Receiver(folder, answers).running() as receiver:
        documents = HttpsDocuments(roots, limit=LIMIT, transport=receiver.transport())
        yield documents, receiver
        await documents.close()


async def test_a_document_is_read_as_it_is(tmp_path: Path) -> None:
    ok = answer("200 OK", b"the text")
    async with served(tmp_path, ok) as (documents, receiver):
        assert await documents.within("s3://work/a/job_1/").read(URI) == b"the text"
        digest = await documents.digest(f"{URI}?page=2")
        assert digest == Digest(sha256(b"the text").hexdigest(), 8)
    first, second = receiver.received
    assert (first.target, second.target) == ("/in/document.pdf", "/in/document.pdf?page=2")
    assert "authorization" not in first.headers
    assert first.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
async def test_one_that_is_not_there_is_none(status: str, tmp_path: Path) -> None:
    async with served(tmp_path, answer(status)) as (documents, _):
        assert await documents.read(URI) is None
        assert await documents.digest(URI) is None


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("401 Unauthorized", "STORAGE_ACCESS_DENIED"),
        ("403 Forbidden", "STORAGE_ACCESS_DENIED"),
        ("206 Partial Content", "WORKSPACE_UNAVAILABLE"),
        ("429 Too Many Requests", "WORKSPACE_UNAVAILABLE"),
        ("500 Internal Server Error", "WORKSPACE_UNAVAILABLE"),
    ],
)
async def test_any_other_answer_is_told(status: str, code: str, tmp_path: Path) -> None:
    async with served(tmp_path, answer(status, b"not the document")) as (documents, _):
        with pytest.raises(WorkspaceError, match=f"answers {status[:3]}") as raised:
            await documents.read(URI)
    assert raised.value.code == code


async def test_a_host_that_does_not_answer_is_told(tmp_path: Path) -> None:
    transport = guarded_transport(GuardedBackend(Detour({}), names({HOST: ["93.184.215.14"]})))
    documents = HttpsDocuments([ROOT], limit=LIMIT, transport=transport)
    with pytest.raises(WorkspaceError, match="did not answer") as raised:
        await documents.read(URI)
    assert raised.value.code == "WORKSPACE_UNAVAILABLE"


# -- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "large",
    [
        answer("200 OK", b"x" * (LIMIT + 1)),
        answer("200 OK", b"x" * (LIMIT + 1), f"Content-Length: {LIMIT + 1}"),
        answer(
            "200 OK",
            b"3e9\r\n" + b"x" * (LIMIT + 1) + b"\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked",
        ),
    ],
    ids=["to the end", "as it says", "in chunks"],
)
async def test_no_more_is_read_than_is_allowed(large: bytes, tmp_path: Path) -> None:
    async with served(tmp_path, large) as (documents, _):
        with pytest.raises(WorkspaceRefusedError, match="more than 1000 bytes") as raised:
            await documents.read(URI)
    assert raised.value.code == "OBJECT_TOO_LARGE"


async def test_exactly_as_much_is_read(tmp_path: Path) -> None:
    async with served(tmp_path, answer("200 OK", b"x" * LIMIT)) as (documents, _):
        assert await documents.read(URI) == b"x" * LIMIT


async def test_what_is_compressed_is_refused(tmp_path: Path) -> None:
    small = answer("200 OK", b"\x1f\x8b", "Content-Encoding: gzip")
    async with served(tmp_path, small) as (documents, _):
        with pytest.raises(WorkspaceRefusedError, match="compressed"):
            await documents.read(URI)


# -- places ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "uri",
    [
        f"https://{HOST}/inside/x",
        f"https://{HOST}/other/x",
        f"https://{HOST}/in%2Fx",
        f"https://{HOST}/in/../other/x",
        f"https://{HOST}/in/%2e%2e/other/x",
        f"https://{HOST}/in/%252e%252e/other/x",
        f"https://{HOST}:8443/in/x",
        f"https://other.{HOST}/in/x",
        f"https://{HOST}.other.example/in/x",
        f"https://user:password@{HOST}/in/x",
        f"https://{HOST}/in/x?X-Amz-Signature=a",
        f"http://{HOST}/in/x",
        f"https://{HOST}\\@other.example/in/x",
        f"s3://{HOST}/in/x",
        "https://127.0.0.1/in/x",
        "https:///in/x",
        "x",
    ],
)
async def test_what_is_not_below_a_named_address_is_not_asked_for(uri: str, tmp_path: Path) -> None:
    async with served(tmp_path, answer("200 OK", b"secret")) as (documents, receiver):
        with pytest.raises(WorkspaceRefusedError):
            await documents.read(uri)
        assert receiver.received == []


async def test_nothing_is_written_and_nothing_is_listed(tmp_path: Path) -> None:
    async with served(tmp_path, answer("200 OK")) as (documents, receiver):
        assert not documents.writable(URI)
        digest = Digest("0" * 64, 1)
        for attempt in (
            documents.write(URI, b"x"),
            documents.create(URI, b"x"),
            documents.create_all([(URI, b"x")]),
            documents.replace(URI, b"x", digest),
            documents.remove(URI),
            documents.folders(ROOT),
            documents.list(ROOT),
        ):
            with pytest.raises(WorkspaceRefusedError, match="can be read, and nothing else"):
                await attempt
        assert receiver.received == []


# -- inside the house --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "::1", "fd00:ec2::254"]
)
async def test_a_name_that_leads_inside_is_refused_and_nobody_is_dialled(address: str) -> None:
    detour = Detour({})
    transport = guarded_transport(GuardedBackend(detour, names({HOST: [address]})))
    documents = HttpsDocuments([ROOT], limit=LIMIT, transport=transport)
    with pytest.raises(WorkspaceRefusedError, match="has an address that is not public"):
        await documents.read(URI)
    assert detour.dialled == []


@pytest.mark.parametrize(
    "root",
    [
        "https://localhost/in",
        "https://10.0.0.1/in",
        "https://wiki.corp/in",
        "https://metadata.google.internal/",
    ],
)
def test_a_place_inside_cannot_be_named(root: str) -> None:
    with pytest.raises(UnsupportedError, match="LUCIUS_INPUT_ROOTS"):
        open_workspace(load_settings({"LUCIUS_INPUT_ROOTS": root}))


# -- redirects ---------------------------------------------------------------------------------


async def test_a_redirect_within_the_named_places_is_followed(tmp_path: Path) -> None:
    ways = (redirect("/in/b"), redirect(f"https://{HOST}/in/c?x=1"), answer("200 OK", b"there"))
    async with served(tmp_path, *ways) as (documents, receiver):
        assert await documents.read(URI) == b"there"
    assert [each.target for each in receiver.received] == ["/in/document.pdf", "/in/b", "/in/c?x=1"]


@pytest.mark.parametrize(
    "place",
    [
        "/other/secret",
        "/in/../other/secret",
        f"http://{HOST}/in/x",
        "https://169.254.169.254/latest/meta-data/",
        "https://127.0.0.1/in/x",
        "https://elsewhere.example/in/x?signature=geheim",
        "file:///etc/passwd",
    ],
)
async def test_one_that_leads_elsewhere_is_not_followed(place: str, tmp_path: Path) -> None:
    async with served(tmp_path, redirect(place), answer("200 OK", b"secret")) as (
        documents,
        receiver,
    ):
        with pytest.raises(WorkspaceRefusedError) as raised:
            await documents.read(URI)
        assert len(receiver.received) == 1
    assert "geheim" not in str(raised.value)


async def test_a_row_of_redirects_ends(tmp_path: Path) -> None:
    async with served(tmp_path, redirect(URI)) as (documents, receiver):
        with pytest.raises(WorkspaceError, match=f"more than {REDIRECTS}"):
            await documents.read(URI)
    assert len(receiver.received) == REDIRECTS + 1


async def test_a_client_that_follows_by_itself_would_reach_the_other_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sabotage: the same story without the judgement of addresses."""
    monkeypatch.setattr(HttpsDocuments, "_checked", lambda self, uri: httpx.URL(uri))
    ways = (redirect("/other/secret"), answer("200 OK", b"secret"))
    async with served(tmp_path, *ways) as (documents, _):
        assert await documents.read(URI) == b"secret"


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["https://docs.example/out", "http://docs.example/in"])
def test_outputs_and_plain_http_cannot_be_named(root: str) -> None:
    setting = "LUCIUS_OUTPUT_ROOTS" if root.startswith("https") else "LUCIUS_INPUT_ROOTS"
    with pytest.raises(UnsupportedError, match=setting):
        open_workspace(load_settings({setting: root}))


async def test_a_named_place_is_read_and_an_account_of_azure_beside_it_is_its_own() -> None:
    settings = load_settings(
        {
            "LUCIUS_INPUT_ROOTS": f"{ROOT},https://name.blob.core.windows.net/docs",
            "LUCIUS_BLOB_CONNECTION": "AccountName=name;AccountKey=a2V5",
        }
    )
    opened = open_workspace(settings)
    served_by = opened._of(URI)  # type: ignore[attr-defined]
    assert isinstance(served_by, HttpsDocuments)
    assert served_by._limit == MOST_OF_A_DOCUMENT
    blob = opened._of("HTTPS://name.Blob.core.windows.net/docs/x")  # type: ignore[attr-defined]
    assert not isinstance(blob, HttpsDocuments)
    await opened.close()
