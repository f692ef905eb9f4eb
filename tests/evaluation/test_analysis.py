import numpy as np
import pytest

from hf_mlcl import evaluation, metrics


@pytest.fixture(scope="module")
def space():
    rng = np.random.default_rng(0)
    labels = rng.random((80, 4)) < [0.6, 0.4, 0.2, 0.0]
    features = labels @ rng.normal(size=(4, 10)) + 0.2 * rng.normal(size=(80, 10))
    return features, labels


def test_quality_is_alignment_and_uniformity(space):
    quality = evaluation.space_quality(*space)
    assert quality["alignment"] == pytest.approx(metrics.alignment(*space))
    assert quality["uniformity"] == pytest.approx(metrics.uniformity(space[0]))


def test_centroids_are_means_of_normalised_rows(space):
    features, labels = space
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    centroids = evaluation.label_centroids(features, labels)
    for label in range(3):
        np.testing.assert_allclose(centroids[label], unit[labels[:, label]].mean(0))
    np.testing.assert_array_equal(centroids[3], 0)


def test_most_similar_labels_are_the_largest_entries_of_the_similarities(space):
    centroids = evaluation.label_centroids(*space)
    similarity = evaluation.prototype_similarities(centroids)
    np.testing.assert_allclose(similarity, similarity.T)
    names = ["a", "b", "c", "d"]
    pairs = evaluation.most_similar_labels(centroids, names, k=6)
    largest_first = sorted((similarity[i, j] for i in range(4) for j in range(i)), reverse=True)
    assert [p[2] for p in pairs] == pytest.approx(largest_first)
    assert pairs[0][2] == pytest.approx(similarity[names.index(pairs[0][0]), names.index(pairs[0][1])])


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_map_gives_every_row_a_place_and_is_the_same_again(space, method):
    points = evaluation.project_2d(space[0], method)
    assert points.shape == (80, 2)
    assert np.isfinite(points).all()
    again = evaluation.project_2d(space[0], method)
    np.testing.assert_allclose(points, again, atol=0.01 * np.ptp(points))  # t-SNE moves by many steps of rounding


def test_umap_says_what_to_install_where_it_is_missing(space):
    try:
        import umap  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match=r"hf-mlcl\[umap\]"):
            evaluation.project_2d(space[0], "umap")
    else:
        assert evaluation.project_2d(space[0], "umap").shape == (80, 2)


def test_f1_stands_beside_the_frequency_of_each_label(space):
    labels = space[1]
    curve = evaluation.f1_by_frequency(labels, labels, labels, list("abcd"))
    assert curve.frequency.tolist() == labels.sum(0).tolist()
    np.testing.assert_allclose(curve.f1, labels.any(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluation.project_2d(np.eye(3), "mds"), "`method` must be 'pca', 'tsne' or 'umap'"),
        (lambda: evaluation.most_similar_labels(np.eye(2), ["a"]), "`label_names` has 1 names, but there are 2"),
        (lambda: evaluation.f1_by_frequency([[1]], [[1]], [[1, 0]]), "`train_labels` has 2 labels"),
        (lambda: evaluation.prototype_similarities([1.0]), "`prototypes` must be a .* matrix"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
