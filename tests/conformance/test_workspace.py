"""What every workspace must do: whole objects, atomic creation, nothing outside its root."""

import asyncio
from hashlib import sha256

import pytest

from lucius.core.errors import WorkspaceRefusedError
from lucius.ports.workspace import Digest
from tests.conformance.on_every import on_every
from tests.conformance.workspace_registry import ADAPTERS, Harness

on_every_workspace = on_every(ADAPTERS)


@on_every_workspace
async def test_an_object_that_is_not_there_reads_as_none(h: Harness) -> None:
    assert await h.workspace.read(h.root + "nothing/here.txt") is None


@on_every_workspace
async def test_what_is_written_is_read(h: Harness) -> None:
    for data in (b"", b"text", bytes(range(256)) * 2048):
        await h.workspace.write(h.root + "deep/down/object.bin", data)
        assert await h.workspace.read(h.root + "deep/down/object.bin") == data


@on_every_workspace
async def test_a_size_is_told_without_the_object(h: Harness) -> None:
    await h.workspace.write(h.root + "object", bytes(300_000))
    assert await h.workspace.size(h.root + "object") == 300_000
    assert await h.workspace.size(h.root + "nothing") is None
    with pytest.raises(WorkspaceRefusedError):
        await h.workspace.size("elsewhere://object")


@on_every_workspace
async def test_create_takes_only_the_first(h: Harness) -> None:
    uri = h.root + "_commits/one.json"
    assert await h.workspace.create(uri, b"first")
    assert not await h.workspace.create(uri, b"second")
    assert not await h.workspace.create(uri, b"first"), "not even the same again"
    assert await h.workspace.read(uri) == b"first"


@on_every_workspace
async def test_of_many_creators_exactly_one_wins(h: Harness) -> None:
    uri = h.root + "new/folder/contested.json"
    contents = [f"creator {n}".encode() for n in range(16)]
    won = await asyncio.gather(*(h.workspace.create(uri, content) for content in contents))
    assert won.count(True) == 1
    assert await h.workspace.read(uri) == contents[won.index(True)]


@on_every_workspace
async def test_create_leaves_a_written_object_alone(h: Harness) -> None:
    await h.workspace.write(h.root + "object", b"written")
    assert not await h.workspace.create(h.root + "object", b"created")
    assert await h.workspace.read(h.root + "object") == b"written"


@on_every_workspace
async def test_readers_see_the_old_or_the_new_whole(h: Harness) -> None:
    uri, whole = h.root + "changing", [bytes([n]) * 300_000 for n in range(8)]
    await h.workspace.write(uri, whole[0])

    async def write() -> None:
        for content in whole[1:]:
            await h.workspace.write(uri, content)

    writing = asyncio.create_task(write())
    while not writing.done():
        assert await h.workspace.read(uri) in whole
        await asyncio.sleep(0)
    await writing
    assert await h.workspace.read(uri) == whole[-1]


@on_every_workspace
async def test_list_gives_what_is_below_a_prefix_sorted(h: Harness) -> None:
    names = ["ocr/output.txt", "ocr/1/l1/output.txt", "ocr2/x", "_commits/a.json"]
    for name in names:
        await h.workspace.write(h.root + name, b"")
    below = [h.root + "ocr/1/l1/output.txt", h.root + "ocr/output.txt"]
    assert await h.workspace.list(h.root + "ocr/") == below
    assert await h.workspace.list(h.root + "ocr") == [*below, h.root + "ocr2/x"]
    assert await h.workspace.list(h.root) == sorted(h.root + name for name in names)
    assert await h.workspace.list(h.root + "nothing/") == []


@on_every_workspace
async def test_what_is_outside_the_root_is_refused(h: Harness) -> None:
    for uri in h.outside:
        assert not h.workspace.writable(uri), uri
        for attempt in (
            h.workspace.read(uri),
            h.workspace.digest(uri),
            h.workspace.write(uri, b"x"),
            h.workspace.create(uri, b"x"),
            h.workspace.replace(uri, b"x", digest_of(b"")),
            h.workspace.list(uri),
            h.workspace.folders(uri),
            h.workspace.remove(uri),
        ):
            with pytest.raises(WorkspaceRefusedError):
                await attempt


@on_every_workspace
async def test_what_is_inside_the_root_is_writable(h: Harness) -> None:
    assert h.workspace.writable(h.root + "some/object")


@on_every_workspace
async def test_a_job_reaches_its_own_folders_and_no_others(h: Harness) -> None:
    own, first = h.root + "sys/a/job_2/", h.root + "sys/a/job_1"
    other = h.root + "sys/b/job_3/output.txt"
    await h.workspace.write(other, b"b's")
    scoped = h.workspace.within(own, first)
    for uri in (own + "x", first + "/_commits/x.json"):
        await scoped.write(uri, b"mine")
        assert await h.workspace.read(uri) == b"mine", "it is the same storage"
    for uri in (other, h.root + "sys/a/job_20/x", h.root + "x", own + "../job_3/x", *h.outside):
        assert not scoped.writable(uri)
        for attempt in (scoped.read(uri), scoped.write(uri, b"x"), scoped.create(uri, b"x")):
            with pytest.raises(WorkspaceRefusedError):
                await attempt
    assert await h.workspace.read(other) == b"b's"


@on_every_workspace
async def test_a_folder_above_the_jobs_opens_none_of_them(h: Harness) -> None:
    await h.workspace.write(h.root + "sys/b/job_3/output.txt", b"b's")
    for folder in (h.root, h.root.rstrip("/"), "elsewhere://x/", ""):
        with pytest.raises(WorkspaceRefusedError):
            await h.workspace.within(folder).read(h.root + "sys/b/job_3/output.txt")


# -- what an object is, and replacing just that ------------------------------------------------


def digest_of(data: bytes) -> Digest:
    return Digest(sha256(data).hexdigest(), len(data))


@on_every_workspace
async def test_a_digest_says_what_an_object_is(h: Harness) -> None:
    assert await h.workspace.digest(h.root + "nothing") is None
    for data in (b"", b"text", bytes(range(256)) * 2048):
        await h.workspace.write(h.root + "object", data)
        assert await h.workspace.digest(h.root + "object") == digest_of(data)


@on_every_workspace
async def test_replace_takes_only_what_was_expected(h: Harness) -> None:
    uri = h.root + "object"
    assert not await h.workspace.replace(uri, b"new", digest_of(b"")), "there is nothing"
    await h.workspace.write(uri, b"old")
    assert not await h.workspace.replace(uri, b"new", digest_of(b"other"))
    assert await h.workspace.read(uri) == b"old"
    assert await h.workspace.replace(uri, b"new", digest_of(b"old"))
    assert await h.workspace.read(uri) == b"new"
    assert await h.workspace.list(h.root) == [uri], "nothing is left beside it"


@on_every_workspace
async def test_of_many_that_expect_the_same_object_one_replaces_it(h: Harness) -> None:
    uri, contents = h.root + "object", [f"by {n}".encode() for n in range(16)]
    await h.workspace.write(uri, b"old")
    old = digest_of(b"old")
    won = await asyncio.gather(*(h.workspace.replace(uri, each, old) for each in contents))
    assert won.count(True) == 1
    assert await h.workspace.read(uri) == contents[won.index(True)]


# -- folders, and removing ---------------------------------------------------------------------


@on_every_workspace
async def test_folders_are_those_directly_below(h: Harness) -> None:
    for name in ("sys/a/job_1/x", "sys/a/job_2/y/z", "sys/b/job_3/x", "sys/file"):
        await h.workspace.write(h.root + name, b"")
    assert await h.workspace.folders(h.root + "sys/") == [h.root + "sys/a/", h.root + "sys/b/"]
    jobs = [h.root + "sys/a/job_1/", h.root + "sys/a/job_2/"]
    assert await h.workspace.folders(h.root + "sys/a") == jobs
    assert await h.workspace.folders(h.root + "nothing/") == []


@on_every_workspace
async def test_remove_takes_an_object_or_all_of_a_folder(h: Harness) -> None:
    names = ["a/job_1/x", "a/job_1/y/z", "a/job_10/x", "a/file"]
    for name in names:
        await h.workspace.write(h.root + name, b"")
    await h.workspace.remove(h.root + "a/job_1/")
    assert await h.workspace.list(h.root) == [h.root + "a/file", h.root + "a/job_10/x"]
    await h.workspace.remove(h.root + "a/file")
    assert await h.workspace.list(h.root) == [h.root + "a/job_10/x"]
    for uri in (h.root + "a/file", h.root + "a/job_1/"):
        await h.workspace.remove(uri)


# -- several objects in order ------------------------------------------------------------------


@on_every_workspace
async def test_objects_are_created_in_order_up_to_the_first_that_is_there(h: Harness) -> None:
    record, first, second = (h.root + name for name in ("job/_commits/r.json", "job/ocr/a", "out"))
    objects = [(record, b"record"), (first, b"first"), (second, b"second")]
    await h.workspace.write(second, b"another's")
    assert await h.workspace.create_all(objects) == 2
    assert await h.workspace.create_all(objects) == 0, "who comes second creates nothing"
    contents = [await h.workspace.read(uri) for uri in (record, first, second)]
    assert contents == [b"record", b"first", b"another's"]
    assert await h.workspace.create_all([(h.root + "x", b"x"), (h.root + "y", b"y")]) == 2


@on_every_workspace
async def test_nothing_is_created_where_the_object_that_forbids_it_is_there(h: Harness) -> None:
    for folder in ("job/_commits/", "job/"):
        mark, objects = f"{h.root}job/_redrives/ocr/1.json", [(f"{h.root}{folder}r", b"record")]
        await h.workspace.write(mark, b"mark")
        assert await h.workspace.create_all(objects, unless=mark) is None
        assert await h.workspace.read(objects[0][0]) is None
        await h.workspace.remove(mark)
        assert await h.workspace.create_all(objects, unless=mark) == 1
        assert await h.workspace.create_all(objects, unless=mark) == 0


@on_every_workspace
async def test_notes_are_objects_like_others(h: Harness) -> None:
    note = h.root + "sys/a/job_1/_attempts/ocr/begun.json"
    assert await h.workspace.create(note, b"one")
    await h.workspace.write(note, b"three")
    assert await h.workspace.read(note) == b"three"
    assert await h.workspace.size(note) == 5
    assert await h.workspace.digest(note) == digest_of(b"three")
    assert await h.workspace.list(h.root + "sys/a/job_1/") == [note]
    assert await h.workspace.folders(h.root + "sys/a/") == [h.root + "sys/a/job_1/"]
    await h.workspace.remove(h.root + "sys/a/job_1/")
    assert await h.workspace.list(h.root) == []
    assert await h.workspace.create(note, b"again")


@on_every_workspace
async def test_the_notes_of_other_jobs_are_out_of_reach(h: Harness) -> None:
    other = h.root + "sys/a/job_10/_commits/r.json"
    await h.workspace.create(other, b"other's")
    scoped = h.workspace.within(h.root + "sys/a/job_1/")
    for attempt in (scoped.read(other), scoped.create(other, b"x"), scoped.write(other, b"x")):
        with pytest.raises(WorkspaceRefusedError):
            await attempt
