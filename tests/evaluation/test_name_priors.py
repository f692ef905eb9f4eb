import pytest
import torch

from hf_mlcl.evaluation.best import name_priors, readable


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("joy", "joy"),
        ("rec.sport.hockey", "rec sport hockey"),
        ("Natural_Language-Processing", "natural language processing"),
        ("dinnerTable", "dinner table"),
        ("NLP", "NLP"),
        ("B2B", "B2B"),
        ("über_gut", "über gut"),
        ("01", "01"),
        ("!!!", "!!!"),
    ],
)
def test_names_are_written_as_in_a_sentence(name, expected):
    assert readable(name) == expected


def test_each_template_gives_one_vector_per_label_in_their_order():
    seen = []

    def encode(texts):
        seen.extend(texts)
        return torch.arange(len(texts), dtype=torch.float32).unsqueeze(1)

    priors = name_priors(["a_b", "c"], encode, ["{}", "About {}."])
    assert seen == ["a b", "c", "About a b.", "About c."]
    assert [prior.flatten().tolist() for prior in priors.values()] == [[0, 1], [2, 3]]


def test_a_description_stands_as_it_is_written_in_the_place_of_a_name():
    seen = []
    encode = lambda texts: seen.extend(texts) or torch.zeros(len(texts), 1)  # noqa: E731
    name_priors(["cs.LG", "a_b"], encode, ["About {}."], {"cs.LG": "Machine-Learning, C++"})
    assert seen == ["About Machine-Learning, C++.", "About a b."]


@pytest.mark.parametrize("template", ["no place", "{} and {}"])
def test_a_template_without_one_place_for_the_name_is_refused(template):
    with pytest.raises(ValueError, match=r"one \{\}"):
        name_priors(["a"], lambda texts: torch.zeros(len(texts), 1), [template])
