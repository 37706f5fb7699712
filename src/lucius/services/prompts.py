"""What SIS is asked: a set of prompts, each with an id and the form that its answer takes."""

from dataclasses import dataclass
from typing import Final, Literal

MAX_PROMPTS: Final = 50
MAX_PROMPT: Final = 4000
MAX_ID: Final = 128


@dataclass(frozen=True, slots=True)
class Prompt:
    prompt: str
    id: str | None = None
    answer: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class SisOptions:
    prompt_set: list[str | Prompt]

    def validate(self) -> None:
        if not 1 <= len(self.prompt_set) <= MAX_PROMPTS:
            raise ValueError(f"/prompt_set: must have 1 to {MAX_PROMPTS} prompts")
        ids = [prompt.id for prompt in self.prompts()]
        for position, prompt in enumerate(self.prompts()):
            where = f"/prompt_set/{position}"
            if not 1 <= len(prompt.prompt) <= MAX_PROMPT:
                raise ValueError(f"{where}: a prompt has 1 to {MAX_PROMPT} characters")
            if not 1 <= len(prompt.id or "") <= MAX_ID:
                raise ValueError(f"{where}/id: must have 1 to {MAX_ID} characters")
            if prompt.id in ids[:position]:
                raise ValueError(f"{where}/id: {prompt.id!r} is the id of another prompt")

    def prompts(self) -> list[Prompt]:
        """All with an id; one without has its place in the set, from 1."""
        asked = [Prompt(each) if isinstance(each, str) else each for each in self.prompt_set]
        return [
            Prompt(each.prompt, str(place) if each.id is None else each.id, each.answer)
            for place, each in enumerate(asked, start=1)
        ]
