"""Every corpus from fixtures in its official layout: packed, unpacked, gzipped, with awkward rows."""

from __future__ import annotations

import csv
import gzip
import io
import itertools

import pytest
from sklearn.model_selection import train_test_split

from data import official
from hf_mlcl.data import CorpusFileError, CorpusFormatError, CorpusWarning, splits
from hf_mlcl.data.corpora import aapd


def names(corpus):
    return next(iter(corpus.values())).features["labels"].feature.names


def labelled(corpus, split):
    known = names(corpus)
    return [[known[i] for i in labels] for labels in corpus[split]["labels"]]


def rows(corpus):
    """Everything that a corpus says, to compare two layouts of it."""
    return {
        split: [
            (row["text"] if "text" in row else row["image"]["bytes"], row["labels"])
            for row in (
                data
                if "text" in data.features
                else data.cast_column("image", type(data.features["image"])(decode=False))
            )
        ]
        for split, data in corpus.items()
    }


# -- AAPD


def test_aapd_csv_keeps_quotes_line_ends_blank_texts_and_unlabelled_rows(load, tmp_path):
    corpus = load("aapd", data_dir=official.write_files(tmp_path, official.aapd_csv()))
    texts = corpus["train"]["text"]
    assert texts[:4] == ['He said "no", twice.', "Two\nlines, one abstract", "", "naïve — façade"]
    assert labelled(corpus, "train")[:5] == [["cs.AI"], ["cs.CL", "cs.LG"], ["cs.LG"], ["cs.AI", "stat.ML"], []]
    assert [len(data) for data in corpus.values()] == [25, 2, 2]


def test_aapd_is_the_same_plain_gzipped_zipped_tarred_with_either_line_end(load, tmp_path):
    files, unix = official.aapd_csv(), official.aapd_csv(line_end="\n")
    plain = rows(load("aapd", data_dir=official.write_files(tmp_path / "plain", files)))
    folders = [official.write_gzipped(tmp_path / "gz", files), official.write_files(tmp_path / "unix", unix)]
    folders.append(
        official.write_zip(tmp_path / "zip" / "aapd.zip", {f"deep/aapd/{k}": v for k, v in files.items()}).parent
    )
    folders.append(official.write_tar(tmp_path / "tar" / "aapd.tar.gz", files, "w:gz").parent)
    for folder in folders:
        assert rows(load("aapd", data_dir=folder)) == plain


def test_aapd_latin1_rows_are_read_beside_utf8_rows(load, tmp_path):
    files = {name: text.encode() for name, text in official.aapd_csv().items()}
    files["dev.csv"] += "caf\xe9,0,0,0,1\r\n".encode("latin-1")
    assert load("aapd", data_dir=official.write_files(tmp_path, files))["validation"]["text"][-1] == "café"


def test_aapd_small_takes_the_studys_own_subset_where_it_is_there(load, tmp_path):
    small = {
        f"aapd-10/{name}": text
        for name, text in official.aapd_csv({k: v[:1] for k, v in official.AAPD_ROWS.items()}).items()
    }
    folder = official.write_files(tmp_path, {**official.aapd_csv(), **small})
    assert [len(data) for data in load("aapd", size="small", data_dir=folder).values()] == [1, 1, 1]
    assert [len(data) for data in load("aapd", data_dir=folder).values()] == [25, 2, 2]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("text,0,1,0\r\n", "3 label columns, expected 4"),
        ("text,0,1,0,yes\r\n", "'stat.ML' holds 'yes', expected 0 or 1"),
        ('"never closed,0,0,0,1\r\n', "not valid CSV"),
    ],
)
def test_a_malformed_row_names_its_file_and_line(load, tmp_path, row, reason):
    files = official.aapd_csv()
    files["dev.csv"] += row
    with pytest.raises(CorpusFormatError, match=rf"dev\.csv, line 4: .*{reason}"):
        load("aapd", data_dir=official.write_files(tmp_path, files))


def test_a_wrong_header_says_what_was_expected(load, tmp_path):
    files = official.aapd_csv()
    files["train.csv"] = "body,label\r\nx,1\r\n"
    with pytest.raises(CorpusFormatError, match=r"train\.csv, line 1: the header is .* expected abstract or text"):
        load("aapd", data_dir=official.write_files(tmp_path, files))


def with_columns(files, change):
    """The CSV files with every row, and its number, given to `change`."""
    changed = {}
    for name, text in files.items():
        written = io.StringIO()
        csv.writer(written).writerows(
            row for row in map(change, itertools.count(), csv.reader(io.StringIO(text, newline=""))) if row is not None
        )
        changed[name] = written.getvalue()
    return changed


def wide_csv(header=True):
    """Files with all labels of AAPD."""
    return {
        f"{part}.csv": "\r\n".join(
            [
                *([",".join(["abstract", *aapd.LABELS])] if header else []),
                *(f"abstract {part} {i},{','.join(str(int(i == n)) for n in range(54))}" for i in range(4)),
                "",
            ]
        )
        for part in ("train", "dev", "test")
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda number, row: row if number else ["text", *row[1:]],
        lambda number, row: [str(number - 1) if number else "", *row],
        lambda number, row: [str(number - 1) if number else "Unnamed: 0", *(row if number else ["text", *row[1:]])],
        lambda number, row: row if number else None,
        lambda number, row: [str(number), *row] if number else None,
    ],
    ids=["text", "index", "index and text", "no header", "index, no header"],
)
def test_aapd_takes_the_headers_that_its_csv_files_are_found_with(load, tmp_path, change):
    expected = rows(load("aapd", data_dir=official.write_files(tmp_path / "a", wide_csv())))
    assert (
        rows(load("aapd", data_dir=official.write_files(tmp_path / "b", with_columns(wide_csv(), change)))) == expected
    )
    assert [len(data) for data in expected.values()] == [4, 4, 4]


def sgm_files(labels="cs.LG stat.ML\ncs.CL\n"):
    files = {}
    for suffix in ("train", "val", "test"):
        files[f"text_{suffix}"] = "first abstract\n\n"
        files[f"label_{suffix}"] = labels
    return files


def test_sgm_layout_pairs_lines_and_ignores_repeated_labels(load, tmp_path):
    folder = official.write_files(tmp_path, sgm_files("cs.LG stat.ML cs.LG\r\ncs.CL\r\n"))
    corpus = load("aapd", data_dir=folder, split="files")
    assert corpus["train"]["text"][:] == ["first abstract", ""]
    assert labelled(corpus, "train") == [["cs.LG", "stat.ML"], ["cs.CL"]]


def test_an_unknown_label_is_left_out_and_named_and_strict_raises(load, tmp_path):
    folder = official.write_files(tmp_path, sgm_files("cs.LG cs.WRONG\ncs.CL\n"))
    with pytest.warns(CorpusWarning, match=r"3 unknown label left out(.|\n)*label_train, line 1: 'cs\.WRONG'"):
        corpus = load("aapd", data_dir=folder, split="files")
    assert labelled(corpus, "test") == [["cs.LG"], ["cs.CL"]]
    with pytest.raises(CorpusFormatError, match=r"cs\.WRONG"):
        load("aapd", data_dir=folder, strict=True)


def test_sgm_files_of_different_length_are_refused(load, tmp_path):
    files = sgm_files()
    files["label_val"] += "cs.AI\n"
    with pytest.raises(CorpusFormatError, match=r"text_val, line 3: the file ends, but .*label_val has more lines"):
        load("aapd", data_dir=official.write_files(tmp_path, files))


# -- RCV1


def rcv1_folder(root, packed=True, gzipped=True):
    items = official.rcv1_items()
    for start in (0, 35):
        day = {f"{number}newsML.xml": item for number, item in list(items.items())[start : start + 35]}
        if packed:
            official.write_zip(root / "CD1" / f"199608{20 + start}.zip", day)
        else:
            official.write_files(root / "CD1" / f"199608{20 + start}", day)
    qrels = official.rcv1_qrels().encode()
    name = "rcv1v2.topics.qrels.gz" if gzipped else "rcv1-v2.topics.qrels"
    return official.write_files(root, {name: gzip.compress(qrels) if gzipped else qrels})


def test_rcv1_splits_by_document_id_and_keeps_topics_that_are_in_every_split(load, tmp_path):
    corpus = load("rcv1", data_dir=rcv1_folder(tmp_path))
    assert [len(data) for data in corpus.values()] == [34, 6, 30]
    assert names(corpus) == ["C15", "CCAT", "GCAT", "M14"]  # GMIL is in one split only
    stories = {
        text: labels for data in corpus.values() for text, labels in zip(data["text"], data["labels"], strict=True)
    }
    assert stories["Story 2300 First. Second."] == [2, 3]
    assert 'AT&T <T.N> says "no" Café prices rose £5.' in stories
    assert stories[""] == [0, 1]  # no text, one topic assigned twice
    assert "Line ends one two" in stories


def test_rcv1_is_the_same_packed_and_unpacked(load, tmp_path):
    packed = rows(load("rcv1", data_dir=rcv1_folder(tmp_path / "packed")))
    unpacked = rows(load("rcv1", data_dir=rcv1_folder(tmp_path / "unpacked", packed=False, gzipped=False)))
    assert {split: sorted(map(str, data)) for split, data in packed.items()} == {
        split: sorted(map(str, data)) for split, data in unpacked.items()
    }


def test_rcv1_items_that_lie_there_twice_count_once(load, tmp_path):
    folder = rcv1_folder(tmp_path)
    rcv1_folder(tmp_path, packed=False)
    assert [len(data) for data in load("rcv1", data_dir=folder).values()] == [34, 6, 30]


def test_rcv1_small_moves_training_documents_into_test_and_keeps_its_labels(load, tmp_path):
    corpus = load("rcv1", size="small", data_dir=rcv1_folder(tmp_path))
    assert [len(data) for data in corpus.values()] == [9, 19, 42]
    assert names(corpus) == ["C15", "CCAT", "GCAT", "M14"]


def test_rcv1_says_which_items_are_missing(load, tmp_path):
    folder = rcv1_folder(tmp_path, packed=False)
    (folder / "CD1" / "19960820" / "2290newsML.xml").unlink()
    with pytest.warns(CorpusWarning, match="1 of the (train|validation) split: 2290"):
        load("rcv1", data_dir=folder)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (b"<newsitem itemid='2290'><text><p>open", "line 1: not well-formed XML"),
        (b"<other/>", "expected a <newsitem>"),
        (b"<newsitem itemid='2290'><p>caf\xe9", "line 1: not well-formed XML"),
        (b"<?xml version='1.0' encoding='klingon'?><newsitem itemid='2290'/>", "line 1: not well-formed XML"),
        (b"<newsitem itemid='7'/>", "itemid is 7, but the file's name says 2290"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><newsitem itemid='2290'/>", "declares a document type"),
    ],
)
def test_rcv1_names_an_item_that_it_cannot_take(load, tmp_path, item, reason):
    folder = rcv1_folder(tmp_path, packed=False)
    (folder / "CD1" / "19960820" / "2290newsML.xml").write_bytes(item)
    with pytest.raises(CorpusFormatError, match=rf"2290newsML\.xml.*{reason}"):
        load("rcv1", data_dir=folder)


def test_rcv1_takes_an_item_in_latin1_that_does_not_say_so(load, tmp_path):
    folder = rcv1_folder(tmp_path, packed=False)
    item = b"<?xml version='1.0'?><newsitem itemid='2290'><text><p>caf\xe9</p></text></newsitem>"
    (folder / "CD1" / "19960820" / "2290newsML.xml").write_bytes(item)
    assert "café" in {text for data in load("rcv1", data_dir=folder).values() for text in data["text"]}


def test_rcv1_names_the_line_of_a_bad_assignment_and_leaves_out_unknown_topics(load, tmp_path):
    folder = rcv1_folder(tmp_path, gzipped=False)
    (tmp_path / "rcv1v2.topics.qrels.gz").unlink(missing_ok=True)
    path = folder / "rcv1-v2.topics.qrels"
    good = path.read_bytes()
    path.write_bytes(b"XXXX 2286 1\n" + good)
    with pytest.warns(CorpusWarning, match="line 1: 'XXXX'"):
        load("rcv1", data_dir=folder)
    path.write_bytes(b"CCAT 2286 1\nCCAT x 1\n" + good)
    with pytest.raises(CorpusFormatError, match="line 2: 'CCAT x 1', expected a topic"):
        load("rcv1", data_dir=folder)


def test_rcv1_without_data_dir_says_what_to_put_where(load):
    with pytest.raises(CorpusFileError, match=r"rcv1 needs data_dir(.|\n)*NIST(.|\n)*newsML.xml"):
        load("rcv1")


# -- BGC


def test_bgc_reads_ampersands_entities_blank_bodies_repeated_genres_crlf_and_latin1(load, tmp_path):
    corpus = load("bgc", data_dir=official.write_files(tmp_path, official.bgc_files()))
    texts = corpus["train"]["text"]
    assert texts[:6] == ['She said "Q&A" & left.', "Entities: & é —.", "", "Twice.", "CRLF here.", "Two\nlines."]
    assert texts[-1] == "Café."
    assert labelled(corpus, "train")[:4] == [
        ["Fiction", "Mystery & Suspense"],
        ["Fiction", "Mystery & Suspense"],
        ["Nonfiction"],
        ["Cooking", "Nonfiction"],
    ]
    assert set(names(corpus)) == {
        "Children\N{RIGHT SINGLE QUOTATION MARK}s Books",
        "Cooking",
        "Fiction",
        "Mystery & Suspense",
        "Nonfiction",
        "Not in the hierarchy",
        "Poetry",
    }
    assert names(corpus) == sorted(names(corpus))


def test_bgc_is_the_same_in_a_zip(load, tmp_path):
    plain = rows(load("bgc", data_dir=official.write_files(tmp_path / "plain", official.bgc_files())))
    folder = official.write_zip(tmp_path / "zip" / "blurbgenrecollectionen.zip", official.bgc_files()).parent
    assert rows(load("bgc", data_dir=folder)) == plain


def test_bgc_small_parts_all_blurbs_anew(load, tmp_path):
    corpus = load("bgc", size="small", data_dir=official.write_files(tmp_path, official.bgc_files()))
    assert [len(data) for data in corpus.values()] == [2, 10, 17]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("<book>\n<body>x</body>\n", "line 2: the file ends inside this <book>"),
        ("<book>\n<body>x</body>\n</book>\n", "line 2: this <book> has no <topics>"),
        ("<book>\n<book>\n", "line 2: this <book> is not closed before the next one on line 3"),
    ],
)
def test_bgc_names_the_line_of_a_broken_book(load, tmp_path, tail, reason):
    files = official.bgc_files()
    files["BlurbGenreCollection_EN_dev.txt"] = f"\n{tail}".encode()
    with pytest.raises(CorpusFormatError, match=rf"EN_dev\.txt, {reason}"):
        load("bgc", data_dir=official.write_files(tmp_path, files))


# -- VOC


def voc_folder(root):
    official.write_tar(root / "VOCtrainval_06-Nov-2007.tar", official.voc_files("trainval", range(1, 21)))
    official.write_tar(root / "VOCtest_06-Nov-2007.tar", official.voc_files("test", range(21, 38)))
    return root


def test_voc_trains_on_trainval_halves_test_and_counts_difficult_objects_as_the_authors(load, tmp_path):
    corpus = load("voc2007", data_dir=voc_folder(tmp_path))
    assert [len(data) for data in corpus.values()] == [20, 8, 9]
    assert labelled(corpus, "train")[:2] == [["car", "dog"], ["car", "tvmonitor"]]  # the car of image 1 is difficult
    assert corpus["train"][0]["image"].size == (24, 24)


def test_voc_difficult_objects_are_present_absent_or_marked_as_not_to_be_scored(load, tmp_path):
    folder = voc_folder(tmp_path)
    chosen = {option: load("voc2007", data_dir=folder, difficult=option) for option in ("present", "absent", "ignore")}
    assert labelled(chosen["present"], "train")[0] == ["car", "dog"]
    assert labelled(chosen["absent"], "train")[0] == labelled(chosen["ignore"], "train")[0] == ["dog"]
    known = names(chosen["ignore"])
    assert [[known[i] for i in row] for row in chosen["ignore"]["train"]["ignored"][:2]] == [["car"], []]
    assert "ignored" not in chosen["absent"]["train"].column_names
    assert {split: len(data) for split, data in chosen["ignore"].items()} == {"train": 20, "validation": 8, "test": 9}


def test_voc_takes_2007_only_from_a_devkit_with_other_years(load, tmp_path):
    only = rows(load("voc2007", data_dir=voc_folder(tmp_path / "only")))
    both = voc_folder(tmp_path / "both")
    for year in (2006, 2012):
        official.write_files(both, official.voc_files("trainval", range(1, 16), year))
        official.write_files(both, official.voc_files("test", range(16, 20), year))
    official.write_tar(both / "VOCtrainval_11-May-2012.tar", official.voc_files("trainval", range(1, 16), 2012))
    assert rows(load("voc2007", data_dir=both)) == only


def test_voc_refuses_the_folder_of_another_year(load, tmp_path):
    official.write_files(tmp_path, official.voc_files("trainval", range(1, 4), 2012))
    with pytest.raises(CorpusFormatError, match=r"trainval\.txt lists '2012_000001', expected ids of six digits"):
        load("voc2007", data_dir=tmp_path / "VOCdevkit" / "VOC2012")
    with pytest.raises(CorpusFileError, match=r"ImageSets/Main/trainval\.txt was not found"):
        load("voc2007", data_dir=tmp_path)


def image_names(corpus, split):
    data = corpus[split]
    return {row["path"] for row in data.cast_column("image", type(data.features["image"])(decode=False))["image"]}


def test_voc_halves_are_scikit_learns_over_the_order_of_the_official_list_or_those_of_the_hash(load, tmp_path):
    listed = [f"{n:06d}.jpg" for n in range(37, 20, -1)]  # as it stands in the file, not sorted
    folder = voc_folder(tmp_path)
    files = official.voc_files("test", range(37, 20, -1))
    official.write_tar(folder / "VOCtest_06-Nov-2007.tar", files)
    corpus = load("voc2007", data_dir=folder)
    validation, test = train_test_split(listed, test_size=0.5, random_state=42)
    assert (image_names(corpus, "validation"), image_names(corpus, "test")) == (set(validation), set(test))
    by_hash = load("voc2007", data_dir=folder, halves="hash")
    assert image_names(by_hash, "validation") == splits.halves(listed)[0] != set(validation)


def test_voc_small_can_be_drawn_anew_for_each_seed(load, tmp_path):
    folder = voc_folder(tmp_path)
    default, same, other = (
        image_names(load("voc2007", size="small", data_dir=folder, **options), "train")
        for options in ({}, {"draw_seed": 42}, {"draw_seed": 1})
    )
    assert default == same != other
    assert len(other) == 4
    with pytest.raises(ValueError, match=r"draw_seed=1 has no use for size='full': it is about size='small'"):
        load("voc2007", data_dir=folder, draw_seed=1)


def test_voc_is_the_same_unpacked(load, tmp_path):
    packed = rows(load("voc2007", data_dir=voc_folder(tmp_path / "packed")))
    files = {**official.voc_files("trainval", range(1, 21)), **official.voc_files("test", range(21, 38))}
    assert rows(load("voc2007", data_dir=official.write_files(tmp_path / "unpacked", files))) == packed


def test_voc_small_is_a_fifth_of_train_with_every_label(load, tmp_path):
    corpus = load("voc2007", size="small", data_dir=voc_folder(tmp_path))
    assert [len(data) for data in corpus.values()] == [4, 8, 9]
    assert {name for row in labelled(corpus, "train") for name in row} == set(official.VOC_KINDS)


# -- NUS-WIDE


def test_nuswide_uses_the_official_split_and_drops_images_without_a_concept(load, tmp_path):
    folder = official.write_files(tmp_path, {**official.nus_lists(), **official.nus_images()})
    corpus = load("nuswide", data_dir=folder)
    assert names(corpus) == list(official.NUS_CONCEPTS)
    assert [len(data) for data in corpus.values()] == [10, 4, 4]
    assert all(corpus[split]["labels"][i] for split in corpus for i in range(len(corpus[split])))


def test_nuswide_is_the_same_with_images_in_a_zip_and_labels_of_the_two_parts(load, tmp_path):
    lists = official.nus_lists()
    plain = rows(load("nuswide", data_dir=official.write_files(tmp_path / "a", {**lists, **official.nus_images()})))
    parted = {
        name: text for name, text in lists.items() if "AllLabels" not in name and name != "ImageList/Imagelist.txt"
    }
    for name, text in lists.items():
        if "AllLabels" in name:
            flags, stem = text.split(), name.replace("AllLabels", "TrainTestLabels").removesuffix(".txt")
            parted[f"{stem}_Train.txt"] = "\n".join(flags[::2]) + "\n"
            parted[f"{stem}_Test.txt"] = "\n".join(flags[1::2]) + "\n"
    official.write_files(tmp_path / "b", parted)
    official.write_zip(tmp_path / "b" / "Flickr.zip", official.nus_images())
    assert rows(load("nuswide", data_dir=tmp_path / "b")) == plain


def test_nuswide_without_the_official_split_draws_one_and_says_so(load, tmp_path):
    files = {**official.nus_lists(official_split=False), **official.nus_images()}
    with pytest.warns(CorpusWarning, match="TrainImagelist.txt is not there"):
        corpus = load("nuswide", data_dir=official.write_files(tmp_path, files))
    assert sum(len(data) for data in corpus.values()) == 18


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("0\n1\n", "line 2: the file ends, but Imagelist.txt has 20 images"),
        ("2\n" * 20, "line 1: '2', expected 0 or 1"),
    ],
)
def test_nuswide_names_the_line_of_a_bad_label_file(load, tmp_path, content, reason):
    files = {**official.nus_lists(), "Groundtruth/AllLabels/Labels_animal.txt": content}
    with pytest.raises(CorpusFormatError, match=rf"Labels_animal\.txt, {reason}"):
        load("nuswide", data_dir=official.write_files(tmp_path, files))


# -- COCO, SemEval, 20 Newsgroups


def coco_files():
    return {
        "annotations/instances_train2014.json": official.coco_instances("train", 15),
        "annotations/instances_val2014.json": official.coco_instances("val", 9),
        **official.coco_images("train", 16),
        **official.coco_images("val", 10),
    }


def test_coco_drops_images_without_annotation_and_orders_labels_by_category_id(load, tmp_path):
    corpus = load("coco2014", data_dir=official.write_files(tmp_path, coco_files()))
    assert [len(data) for data in corpus.values()] == [15, 4, 5]
    assert names(corpus) == ["person", "car", "cat"]


def test_coco_bad_and_missing_images_are_left_out_counted_and_named_and_strict_raises(load, tmp_path):
    folder = official.write_files(tmp_path, coco_files())
    broken = folder / "train2014" / "COCO_train2014_000000000003.jpg"
    broken.write_bytes(broken.read_bytes()[:200])
    (folder / "train2014" / "COCO_train2014_000000000005.jpg").unlink()
    for _ in range(2):  # the cache warns as the build did
        with pytest.warns(CorpusWarning, match="2 image left out(.|\n)*000000000005.jpg: not in(.|\n)*") as caught:
            corpus = load("coco2014", data_dir=folder)
        assert "COCO_train2014_000000000003.jpg" in str(caught[0].message)
    assert [len(data) for data in corpus.values()] == [13, 4, 5]
    with pytest.raises(CorpusFormatError, match=r"COCO_train2014_000000000003\.jpg"):
        load("coco2014", data_dir=folder, strict=True)


def test_coco_truncated_annotations_name_themselves(load, tmp_path):
    files = coco_files()
    files["annotations/instances_val2014.json"] = files["annotations/instances_val2014.json"][:400]
    with pytest.raises(CorpusFileError, match=r"instances_val2014\.json is truncated"):
        load("coco2014", data_dir=official.write_files(tmp_path, files))


def test_semeval_reads_quotes_crlf_and_the_official_zip(load, tmp_path):
    header = "ID\tTweet\t" + "\t".join(("anger", "joy"))
    body = f'{header}\r\n1\tShe said "hm\t1\t0\r\n2\t\t0\t0\r\n'
    files = {
        f"SemEval2018-Task1-all-data/English/E-c/2018-E-c-En-{part}.txt": body for part in ("train", "dev", "test-gold")
    }
    corpus = load("semeval2018", data_dir=official.write_zip(tmp_path / "SemEval2018-Task1-all-data.zip", files).parent)
    assert corpus["test"]["text"][:] == ['She said "hm', ""]
    assert labelled(corpus, "test") == [["anger"], []]


def test_semeval_without_gold_labels_is_refused(load, tmp_path):
    body = "ID\tTweet\tanger\tjoy\n1\thm\tNONE\tNONE\n"
    with pytest.raises(CorpusFormatError, match=r"dev\.txt, line 2: column 'anger' holds 'NONE'"):
        load("semeval2018", data_dir=official.write_files(tmp_path, {"2018-E-c-En-dev.txt": body}))


def test_newsgroups_are_read_as_latin1_and_the_folder_is_the_label(load, tmp_path):
    files = {
        f"20news-bydate-{part}/{group}/{number}": f"Subject: caf\xe9 {part} {number}\n".encode("latin-1")
        for part in ("train", "test")
        for group in ("alt.atheism", "sci.space")
        for number in range(10)
    }
    corpus = load("newsgroups20", data_dir=official.write_tar(tmp_path / "20news-bydate.tar.gz", files, "w:gz").parent)
    assert [len(data) for data in corpus.values()] == [18, 2, 20]
    assert corpus["test"]["text"][0].startswith("Subject: café test")
    assert set(map(tuple, labelled(corpus, "validation"))) == {("alt.atheism",), ("sci.space",)}


@pytest.mark.parametrize("name", ["aapd", "bgc", "coco2014", "newsgroups20", "nuswide", "semeval2018", "voc2007"])
def test_an_empty_folder_says_what_to_put_there(load, tmp_path, name):
    with pytest.raises(CorpusFileError, match=rf"To get {name} by hand: put (.|\n)*data_dir="):
        load(name, data_dir=tmp_path)
