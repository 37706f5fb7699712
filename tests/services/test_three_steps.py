"""OCR, EMBEDDING and SIS over the documents that ship with the repository, through the kit."""

import json
from pathlib import Path

import pytest

from tests.services.stage import SCAN, Stage

pytestmark = pytest.mark.slow


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
