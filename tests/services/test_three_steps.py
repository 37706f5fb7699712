"""OCR, EMBEDDING and SIS over the documents that ship with the repository, through the kit."""

import json
from io import BytesIO
from pathlib import Path

from PIL import Image

from lucius.services.documents import sheets_of
from lucius.services.sheets import PageChoice
from tests.services.papers import image_bytes, scanned
from tests.services.stage import SCAN, Stage

ORIENTATION = 0x0112


async def test_three_steps_answer_questions_about_the_sample(tmp_path: Path) -> None:
    asked = ["How much does the Harbour Board pay?", "How quickly must a failed light be restored?"]
    async with Stage(tmp_path) as stage:
        ocr = await stage.step("OCR", payload={"language": "en"})
        earlier = {"ocr": ocr["output_ref"]}
        embedding = await stage.step("EMBEDDING", previous=earlier, payload={"dimensions": 128})
        earlier["embedding"] = embedding["output_ref"]
        wanted = (tmp_path / "out" / "answers.json").as_uri()
        payload = {"prompt_set": [asked[0], {"id": "light", "prompt": asked[1], "answer": "json"}]}
        more = {"final_step": True, "output_ref": {"uri": wanted}}
        sis = await stage.step("SIS", previous=earlier, payload=payload, **more)
        assert [r["status"] for r in (ocr, embedding, sis)] == ["SUCCEEDED"] * 3
        assert ocr["output_ref"]["uri"] == (tmp_path / "jobs/job_1/ocr/output.txt").as_uri()
        assert sis["output_ref"]["uri"] == wanted
        first_page, second_page = stage.text("jobs/job_1/ocr/output.txt").split("\f")
        assert "18,400 crowns" in first_page
        assert second_page.rstrip().endswith("Marit & Sons.")
        vectors = json.loads(stage.text("jobs/job_1/embedding/vectors.json"))
        assert len(vectors["passages"][0]["vector"]) == vectors["dimensions"] == 128
        assert {each["page"] for each in vectors["passages"]} == {1, 2}
        assert stage.text("jobs/job_1/sis/result.json") == stage.text("out/answers.json")
        first, second = json.loads(stage.text("out/answers.json"))["answers"]
    assert (first["id"], first["page"]) == ("1", 1)
    assert first["answer"].startswith("The Harbour Board pays 18,400 crowns a year")
    assert first["sources"][0]["passage"] == first["passage"]
    assert (second["id"], second["answer"]["page"]) == ("light", 2)
    assert "restore it within six hours" in second["answer"]["text"]
    assert second["answer"]["passage"] == second["passage"]


async def test_a_scan_is_recognised_page_by_page(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        ocr = await stage.step("OCR", input_ref=SCAN.as_uri())
        first, second = stage.output(ocr).split("\f")
        assert "crack of four centimetres" in first
        assert "The repair of the lens will cost 2,150 crowns." in second
        payload = {"prompt_set": ["What will the repair of the lens cost?", "Who is the king?"]}
        sis = await stage.step("SIS", previous={"ocr": ocr["output_ref"]}, payload=payload)
        answer, none = json.loads(stage.output(sis))["answers"]
    assert (answer["answer"], answer["page"]) == (
        "The repair of the lens will cost 2,150 crowns.",
        2,
    )
    assert (none["answer"], none["page"], none["sources"]) == (None, None, [])


async def test_chosen_pages_keep_their_numbers_and_only_they_are_read(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        second = stage.output(await stage.step("OCR", payload={"pages": "2"}))
        first = stage.output(await stage.step("OCR", jobId="job_2", payload={"pages": 1}))
    assert second.startswith("\fIf the light fails")
    assert "\f" not in first
    assert first.startswith("Maintenance agreement")


async def test_an_image_is_one_page_and_each_frame_of_a_tiff_is_one(tmp_path: Path) -> None:
    picture = scanned(["Lamp oil: 40 litres"])
    async with Stage(tmp_path) as stage:
        png = await stage.on(image_bytes(picture.convert("LA")))
        assert stage.output(png).strip() == "Lamp oil: 40 litres"
        frames = tmp_path / "frames.tif"
        picture.save(frames, save_all=True, append_images=[scanned(["Wick: 2 metres"])])
        tiff = await stage.on(frames.read_bytes(), payload={"language": "en-GB"})
        assert stage.output(tiff).rstrip() == "Lamp oil: 40 litres\fWick: 2 metres"


def test_a_photograph_is_turned_as_its_camera_says() -> None:
    lying, exif = Image.new("RGB", (60, 20)), Image.Exif()
    exif[ORIENTATION] = 6
    file = BytesIO()
    lying.save(file, "JPEG", exif=exif)
    ((_, sheet),) = sheets_of(file.getvalue(), PageChoice())
    assert not isinstance(sheet, str)
    assert sheet.shape == (60, 20, 3)


async def test_embedding_and_sis_read_the_input_when_they_come_first(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        embedding = await stage.step("EMBEDDING", payload={"chunk_size": 200, "overlap": 40})
        sis = await stage.step("SIS", payload={"prompt_set": ["When does the agreement begin?"]})
        (answer,) = json.loads(stage.output(sis))["answers"]
        passages = json.loads(stage.output(embedding))["passages"]
        text = b"The boat leaves at noon.\fThe horn sounds at six."
        asked = {"prompt_set": ["When does the horn sound?"]}
        (other,) = json.loads(stage.output(await stage.on(text, "SIS", payload=asked)))["answers"]
    assert "1 March 2026" in answer["answer"]
    assert max(len(each["text"]) for each in passages) <= 200
    assert (other["answer"], other["page"]) == ("The horn sounds at six.", 2)
