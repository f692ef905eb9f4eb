"""Encoders at work: batches, scores by prototypes, nearest examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from hf_mlcl import MLCLModel
from hf_mlcl.data import image_processor, image_transform
from hf_mlcl.inference import Encoder, ExampleIndex, PrototypeClassifier, retrieval
from hub.cases import NAMES, SIZE, image_case, text_case


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return text_case(tmp_path_factory.mktemp("text"), pooling="mean")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return image_case(tmp_path_factory.mktemp("image"))


class TestEncoder:
    @pytest.mark.parametrize("batch_size", [1, 7, 64])
    def test_texts_in_batches_of_any_size_have_the_trainers_features(self, text, batch_size):
        features = Encoder(text.model, text.processor, batch_size=batch_size).features(text.inputs)
        assert np.allclose(features, text.features(), atol=1e-6)

    @pytest.mark.parametrize("processor", [image_transform(size=SIZE), image_processor(SIZE)], ids=["transform", "hf"])
    def test_images_have_the_trainers_features(self, image, processor):
        features = Encoder(image.model, processor).features(image.inputs)
        assert np.allclose(features, image.features(), atol=1e-5)

    @pytest.mark.parametrize("kind", [str, Path])
    def test_images_may_be_paths(self, image, tmp_path, kind):
        image.inputs[0].save(tmp_path / "one.png")
        for inputs in (kind(tmp_path / "one.png"), [kind(tmp_path / "one.png")]):
            features = Encoder(image.model, image.processor).features(inputs)
            assert np.allclose(features, image.features()[:1], atol=1e-5)

    def test_the_models_mode_does_not_matter_and_is_kept(self, text):
        text.model.train()
        features = Encoder(text.model, text.processor).features(text.inputs)
        assert text.model.training
        text.model.eval()
        assert np.allclose(features, text.features(), atol=1e-6)

    @pytest.mark.parametrize("kind", ["text", "image"])
    def test_loaded_from_a_folder_it_gives_the_same(self, kind, request, tmp_path):
        case = request.getfixturevalue(kind)
        case.model.save_pretrained(tmp_path)
        case.processor.save_pretrained(tmp_path)
        features = Encoder.from_pretrained(tmp_path).features(case.inputs)
        assert np.allclose(features, case.features(), atol=1e-5)

    def test_wrong_input_is_named(self, text, image, tmp_path):
        encoder = Encoder(text.model, text.processor)
        with pytest.raises(ValueError, match="inputs is empty"):
            encoder.features([])
        with pytest.raises(ValueError, match="reads texts, but one of the inputs is int"):
            encoder.features(["a", 3])
        with pytest.raises(ValueError, match="must be an MLCLModel"):
            Encoder(text.result.classifier, text.processor)
        with pytest.raises(ValueError, match="processor must be"):
            Encoder(text.model, None)
        with pytest.raises(ValueError, match="batch_size"):
            Encoder(text.model, text.processor, batch_size=0)
        image.model.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="has no image processor"):
            Encoder.from_pretrained(tmp_path)


class TestPrototypeClassifier:
    def test_scores_are_cosines_of_projected_embeddings_to_prototypes(self, text):
        found = PrototypeClassifier.from_model(Encoder(text.model, text.processor)).similarities(text.inputs)
        embeddings = text.model.projection(torch.from_numpy(text.features())).detach().numpy()
        prototypes = text.model.prototypes.weight.detach().numpy()
        expected = [[e @ p / np.linalg.norm(e) / np.linalg.norm(p) for p in prototypes] for e in embeddings]
        assert np.allclose(found, expected, atol=1e-5)

    @pytest.mark.parametrize("kind", ["text", "image"])
    def test_it_answers_as_pipelines_do(self, kind, request):
        case = request.getfixturevalue(kind)
        classify = PrototypeClassifier.from_model(Encoder(case.model, case.processor))
        similarities = classify.similarities(case.inputs)
        answers = classify(case.inputs)
        for row, hits in zip(similarities, answers, strict=True):
            assert [hit["label"] for hit in hits] == [NAMES[i] for i in row.argsort(descending=True)]
            assert [hit["score"] for hit in hits] == pytest.approx(sorted(row.tolist(), reverse=True))
        assert classify(case.inputs[0], top_k=1)[0]["label"] == answers[0][0]["label"]

    def test_a_trained_encoder_knows_labels_by_their_prototypes_alone(self, tmp_path):
        """After some training with `reg`, the label in the text is nearest."""
        case = text_case(tmp_path, pooling="mean", max_steps=150, learning_rate=2e-3)
        classify = PrototypeClassifier.from_model(Encoder(case.model, case.processor))
        pairs = zip(case.inputs, case.rows["labels"], strict=True)
        single = [(words, labels[0]) for words, labels in pairs if len(labels) == 1]
        found = classify([words for words, _ in single], top_k=1)
        right = [hits[0]["label"] == NAMES[label] for hits, (_, label) in zip(found, single, strict=True)]
        assert len(right) >= 8
        assert np.mean(right) > 0.9

    def test_prototypes_may_be_means_of_examples(self, text):
        encoder = Encoder(text.model, text.processor)
        labels = [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
        classify = PrototypeClassifier.from_examples(encoder, ["red a", "red of", "green the"], labels)
        normalised = torch.nn.functional.normalize(encoder.features(["red a", "red of"]), dim=1)
        mean = normalised.mean(0)
        expected = torch.cosine_similarity(encoder.features("red the"), mean[None])
        assert classify.similarities("red the")[0, 0].item() == pytest.approx(expected.item(), abs=1e-5)
        assert classify.similarities("red the")[0, 2] == 0, "no example, no score"

    @pytest.mark.parametrize("names", [["w", "x", "y"], ["colour", "article"]], ids=["as many", "fewer"])
    def test_labels_that_training_did_not_know_have_their_own_names(self, text, names):
        encoder, inputs = Encoder(text.model, text.processor), ["red red", "the", "of of a"][: len(names)]
        classify = PrototypeClassifier.from_examples(encoder, inputs, np.eye(len(names)), label_names=names)
        assert [hits[0]["label"] for hits in classify(inputs, top_k=1)] == names
        assert classify.similarities(inputs).shape == (len(names), len(names))
        assert PrototypeClassifier.from_model(encoder).label_names == NAMES

    def test_wrong_input_is_named(self, text):
        encoder = Encoder(text.model, text.processor)
        with pytest.raises(ValueError, match=r"a row for each of the 3 labels, got \(2, 8\)\. Name labels"):
            PrototypeClassifier(encoder, torch.zeros(2, 8))
        with pytest.raises(ValueError, match=r"a row for each of the 2 labels, got \(3, 8\)\.$"):
            PrototypeClassifier(encoder, torch.zeros(3, 8), label_names=["a", "b"])
        with pytest.raises(ValueError, match="label_names must be a list of different names"):
            PrototypeClassifier(encoder, torch.zeros(2, 8), label_names=["a", "a"])
        with pytest.raises(ValueError, match="space must be"):
            PrototypeClassifier(encoder, torch.zeros(3, 8), "logits")
        with pytest.raises(ValueError, match="top_k must lie between 1 and the number of labels, 3"):
            PrototypeClassifier.from_model(encoder)("a", top_k=4)


class TestExampleIndex:
    def test_it_finds_what_an_exhaustive_search_finds(self, monkeypatch):
        monkeypatch.setattr(retrieval, "TILE_ROWS", 37)
        rng = np.random.default_rng(0)
        features, queries = rng.normal(size=(500, 12)).astype("float32"), rng.normal(size=(9, 12)).astype("float32")
        found = ExampleIndex(features).search(queries, k=20)
        distance, rows = NearestNeighbors(n_neighbors=20, metric="cosine").fit(features).kneighbors(queries)
        assert np.array_equal(found.rows, rows)
        assert np.allclose(found.similarity, 1 - distance, atol=1e-5)

    @pytest.mark.parametrize("tile", [1, 2, 100])
    def test_among_equals_the_earlier_row_comes_first(self, tile, monkeypatch):
        monkeypatch.setattr(retrieval, "TILE_ROWS", tile)
        index = ExampleIndex(np.array([[1.0, 0], [0, 1], [2, 0], [0, 3], [1, 0]]))
        assert index.search([[1.0, 0.0]], k=4).rows.tolist() == [[0, 2, 4, 1]]

    def test_saved_and_loaded_it_answers_the_same(self, tmp_path):
        features = torch.randn(50, 6)
        index = ExampleIndex(features)
        index.save(tmp_path / "deep" / "index.safetensors")
        loaded = ExampleIndex.load(tmp_path / "deep" / "index.safetensors")
        assert len(loaded) == 50
        assert np.array_equal(loaded.search(features, k=3).rows, index.search(features, k=3).rows)
        assert [path.name for path in (tmp_path / "deep").iterdir()] == ["index.safetensors"]

    @pytest.mark.parametrize("kind", ["text", "image"])
    def test_the_nearest_example_of_an_example_is_itself(self, kind, request):
        case = request.getfixturevalue(kind)
        encoder = Encoder(case.model, case.processor)
        index = ExampleIndex(encoder.features(case.inputs))
        found = index.search(encoder.features(case.inputs[3]), k=2)
        assert found.similarity[0, 0] == pytest.approx(1.0, abs=1e-5)
        assert case.inputs[found.rows[0, 0]] == case.inputs[3]

    def test_wrong_input_is_named(self, tmp_path):
        index = ExampleIndex(np.eye(3))
        with pytest.raises(ValueError, match="k must lie between 1 and the number of examples, 3"):
            index.search(np.eye(3), k=4)
        with pytest.raises(ValueError, match="queries has 2 numbers per row, but the index 3"):
            index.search(np.eye(2))
        with pytest.raises(ValueError, match="NaN or infinity"):
            ExampleIndex([[np.nan]])
        with pytest.raises(ValueError, match="features has no rows"):
            ExampleIndex(np.zeros((0, 3)))
        with pytest.raises(ValueError, match="There is no index at"):
            ExampleIndex.load(tmp_path / "none")
        MLCLModel.from_features(4, ["a"]).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="is no index: it holds"):
            ExampleIndex.load(tmp_path / "model.safetensors")


@pytest.fixture(scope="module")
def many():
    pytest.importorskip("faiss", reason="needs hf-mlcl[faiss]")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 24))
    rows = centres[rng.integers(40, size=3000)] + 0.4 * rng.normal(size=(3000, 24))
    return rows, rows[:100] + 0.1 * rng.normal(size=(100, 24))


class TestIndexOfMany:
    """Beyond `EXACT_ROWS`, by FAISS."""

    def test_it_finds_nearly_all_of_the_nearest_with_their_exact_similarity(self, many):
        rows, queries = many
        exact, found = (ExampleIndex(rows, approximate=way).search(queries, k=10) for way in (False, True))
        recall = np.mean([len({*a} & {*b}) / 10 for a, b in zip(exact.rows, found.rows, strict=True)])
        assert recall > 0.97
        unit, asked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, queries))
        expected = np.einsum("qd,qkd->qk", asked, unit[found.rows])
        assert np.abs(found.similarity - expected).max() < 1e-5
        assert (np.diff(found.similarity, axis=1) <= 1e-6).all(), "nearest first"

    def test_it_is_built_once_saved_and_loaded(self, many, tmp_path, monkeypatch):
        rows, queries = many
        index = ExampleIndex(rows, approximate=True)
        index.save(tmp_path / "index.safetensors")
        monkeypatch.setattr(retrieval, "_build_graph", lambda features: pytest.fail("it is there already"))
        again = ExampleIndex.load(tmp_path / "index.safetensors")
        assert not again.is_exact
        assert again.search(queries, 5).rows.tolist() == index.search(queries, 5).rows.tolist()
        ExampleIndex(rows[:10]).save(tmp_path / "index.safetensors")
        assert ExampleIndex.load(tmp_path / "index.safetensors").is_exact, "nothing is left of the one before"

    def test_a_graph_of_other_features_is_refused(self, many, tmp_path):
        rows, _ = many
        ExampleIndex(rows[:100], approximate=True).save(tmp_path / "one.safetensors")
        ExampleIndex(rows[:90]).save(tmp_path / "two.safetensors")
        (tmp_path / "one.safetensors.faiss").rename(tmp_path / "two.safetensors.faiss")
        with pytest.raises(ValueError, match="is the graph of other features"):
            ExampleIndex.load(tmp_path / "two.safetensors")

    def test_the_number_of_examples_decides(self, many, monkeypatch):
        rows, _ = many
        monkeypatch.setattr(retrieval, "EXACT_ROWS", 50)
        assert ExampleIndex(rows[:50]).is_exact
        assert not ExampleIndex(rows[:51]).is_exact

    def test_without_faiss_it_searches_exactly_and_says_so(self, monkeypatch, caplog):
        monkeypatch.setattr(retrieval, "find_spec", lambda name: None)
        monkeypatch.setattr(retrieval, "EXACT_ROWS", 2)
        assert ExampleIndex(np.eye(3)).search(np.eye(3), k=1).rows.flatten().tolist() == [0, 1, 2]
        assert "3 examples are searched one by one, since FAISS is not installed: pip install" in caplog.text
        with pytest.raises(ImportError, match=r"needs FAISS: pip install 'hf-mlcl\[faiss\]'"):
            ExampleIndex(np.eye(3), approximate=True)
