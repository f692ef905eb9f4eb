"""Is there a way to the Hub?"""

from __future__ import annotations

import socket
from urllib.parse import urlparse
from urllib.request import getproxies

from huggingface_hub import constants


def hub_is_reachable(timeout: float = 5.0) -> bool:
    """Whether the Hub's host has an address and takes a connection; never in offline mode.

    `huggingface_hub` tries for half a minute before it gives up, which is long when all one wants is to say so.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    address = urlparse(constants.ENDPOINT)
    if address.scheme in getproxies():  # only the proxy knows
        return True
    try:
        with socket.create_connection(
            (address.hostname or "", address.port or (80 if address.scheme == "http" else 443)), timeout=timeout
        ):
            return True
    except OSError:
        return False
