"""Files that are put into a folder only when all of them could be made."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from hf_mlcl.hub.staging import staged


def test_a_folder_that_is_there_needs_no_place_beside_it(tmp_path):
    """Its parent may be another disk, or closed to the user."""
    with staged(tmp_path) as stage:
        assert stage.parent == tmp_path
        (stage / "a").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_mount_point_can_be_written_to():
    mount = Path("/dev/shm")
    if not os.path.ismount(mount) or not os.access(mount, os.W_OK):
        pytest.skip("there is no /dev/shm of its own to write to")
    name = f"hf-mlcl-{uuid.uuid4()}"
    try:
        with staged(mount) as stage:
            (stage / name).write_text("new")
        assert (mount / name).read_text() == "new"
    finally:
        (mount / name).unlink(missing_ok=True)


@pytest.mark.parametrize("exists", [True, False])
def test_an_error_leaves_everything_as_it_was(tmp_path, exists):
    folder = tmp_path / "model"
    if exists:
        folder.mkdir()
        (folder / "a").write_text("old")

    def interrupted():
        with staged(folder) as stage:
            (stage / "a").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [path.name for path in tmp_path.rglob("*")] == (["model", "a"] if exists else [])
    assert not exists or (folder / "a").read_text() == "old"
