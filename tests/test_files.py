"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from hf_mlcl.files import staged, whole_file


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


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "file")
    for text in ("first", "second"):
        with whole_file(tmp_path / "link") as draft:
            draft.write_text(text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "disk" / "file").read_text() == text
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["disk", "file", "link"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(tmp_path / "pipe") as draft:
            draft.write_text("through it")
        assert os.read(reader, 100) == b"through it"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def write_and_fail(path, error):
    with whole_file(path) as draft:
        draft.write_text("half of")
        raise error


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_file_that_could_not_be_written_is_the_old_one_and_no_draft_stays(tmp_path, error):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    with pytest.raises(type(error)):
        write_and_fail(path, error)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"metrics.json": "old"}


def test_of_two_who_write_at_once_the_last_wins_with_all_of_its_file(tmp_path):
    path = tmp_path / "new folder" / "metrics.json"
    with whole_file(path) as first, whole_file(path) as second:
        first.write_text("first")
        second.write_text("second")
        assert not list(path.parent.glob("*.json"))
    assert path.read_text() == "first"  # which leaves its block last
    assert [each.name for each in path.parent.iterdir()] == ["metrics.json"]


def test_a_file_has_the_rights_of_any_other(tmp_path):
    (tmp_path / "plain").write_text("")
    with whole_file(tmp_path / "whole") as draft:
        draft.write_text("")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "plain").stat().st_mode
