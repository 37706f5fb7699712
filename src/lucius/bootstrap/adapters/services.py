"""Which services run here: the packaged ones, or those that a team names."""

import importlib
from typing import Any, Final

from lucius.bootstrap.adapters.unsupported import LibrariesMissingError, UnsupportedError
from lucius.platform import Service
from lucius.services import Embedding, Ocr, Sis, missing
from lucius.services.endpoint import AnswerEndpoint
from lucius.settings import Settings

PACKAGED_SERVICES: Final = (Ocr, Embedding, Sis)


def packaged_services(settings: Settings) -> list[Service]:
    """OCR, EMBEDDING and SIS."""
    check_libraries()
    return [Ocr(), Embedding(), Sis(answer_endpoint(settings))]


def check_libraries() -> None:
    """What the packaged services compute with comes with an extra."""
    if names := missing():
        raise LibrariesMissingError(
            f"the services OCR, EMBEDDING and SIS are not installed ({', '.join(names)} missing): pip"
            " install 'lucius[services]' (Python 3.11 or 3.12), or run workers of your own, which pull"
            " their directives from POST /v1/services/{service}/directives:pull"
        )


def packaged_names() -> list[str]:
    """As `lucius service run` takes them."""
    check_libraries()
    return [f"{kind.__module__}:{kind.__qualname__}" for kind in PACKAGED_SERVICES]


def answer_endpoint(settings: Settings) -> AnswerEndpoint | None:
    if not settings.answer_url:
        return None
    if not settings.answer_model:
        raise UnsupportedError(
            "LUCIUS_ANSWER_URL is set: name the model in LUCIUS_ANSWER_MODEL too"
        )
    key = settings.answer_key.get_secret_value()
    return AnswerEndpoint(settings.answer_url, settings.answer_model, key)


def named_service(name: str, settings: Settings) -> Service:
    """`package.module:Name`, a Service class or instance."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UnsupportedError(f"{name} does not name a service: it takes MODULE:NAME")
    try:
        found = getattr(importlib.import_module(module), attribute)
        made = _made(found, settings) if isinstance(found, type) else found
    except UnsupportedError:
        raise
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        raise UnsupportedError(f"{name} cannot be loaded: {reason}") from error
    if not isinstance(made, Service):
        raise UnsupportedError(f"{name} is not a lucius.platform.Service")
    return made


def _made(kind: type, settings: Settings) -> Any:
    """A packaged service as `lucius up` has it; others are made without arguments."""
    if kind in PACKAGED_SERVICES:
        return next(each for each in packaged_services(settings) if type(each) is kind)
    return kind()
