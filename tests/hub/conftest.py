from __future__ import annotations

import pytest

from hub.cases import image_case, text_case
from hub.hub_server import HubServer


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    return text_case(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    return image_case(tmp_path_factory.mktemp("image"))


@pytest.fixture
def server():
    with HubServer() as running:
        yield running
