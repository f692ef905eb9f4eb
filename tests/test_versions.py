"""What a result says of the machine that it was made on."""

import platform

import pytest

from hf_mlcl import versions

EPYC = "processor\t: 0\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC \nstepping\t: 1\n"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        (EPYC.format(family=25, model=17), "AMD EPYC, family 25 model 17"),
        (EPYC.format(family=26, model=2), "AMD EPYC, family 26 model 2"),
        ("model name\t: ARMv8 Processor rev 1\n", "ARMv8 Processor rev 1"),
        ("BogoMIPS\t: 50.00\n", platform.processor() or platform.machine()),
    ],
)
def test_processors_of_one_name_are_told_apart_where_the_system_numbers_them(told, name, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(told)
    monkeypatch.setattr(versions, "Path", lambda path: tmp_path / "cpuinfo")
    assert versions.processor_name() == name
