"""Addresses as they may be shown: without user, password, and the values of their query."""

import re
from typing import Final

_USERINFO: Final = re.compile(r"//[^/@\s]*@")
_QUERY_VALUE: Final = re.compile(r"([?&][^=&#\s]*=)[^&#\s,]+")


def without_credentials(text: str) -> str:
    """Any value of a query may be a key, whatever its name is. Text that is no address stays as it is."""
    if "//" not in text:
        return text
    return _QUERY_VALUE.sub(r"\1***", _USERINFO.sub("//***@", text))
