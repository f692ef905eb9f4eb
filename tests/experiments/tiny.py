"""Corpora of a few rows in their official layouts, and backbones of a few thousand weights."""

from __future__ import annotations

import gzip
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from data import official
from hf_mlcl import MLCLModel
from hf_mlcl.data import word_tokenizer

WORDS = [
    "a",
    "training",
    "test",
    "validation",
    "abstract",
    "story",
    "blurb",
    "tweet",
    "post",
    "about",
    "number",
    "first",
    "second",
    "one",
    "two",
    "three",
]


def text_backbone(folder: Path) -> Path:
    """A BERT of two layers with its tokenizer, as `--backbone` takes it."""
    tokenizer = word_tokenizer([" ".join(WORDS)])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    BertModel(config).save_pretrained(folder)
    return folder


def image_backbone(folder: Path) -> Path:
    """A small timm model, saved as `--backbone` takes it."""
    torch.manual_seed(0)
    MLCLModel.from_backbone("test_resnet", ["any", "other"], pretrained=False).save_backbone(folder)
    return folder


def aapd(folder: Path) -> Path:
    topics = official.AAPD_HEADER[1:]
    rows = {
        split: [(f"{split} abstract number {i}", [topics[i % 4], topics[(i + 1 + i // 4) % 4]]) for i in range(count)]
        for split, count in (("train", 32), ("dev", 12), ("test", 12))
    }
    return official.write_files(folder, official.aapd_csv(rows))


def rcv1(folder: Path) -> Path:
    items = {f"{number}newsML.xml": item for number, item in official.rcv1_items().items()}
    official.write_zip(folder / "CD1" / "19960820.zip", items)
    return official.write_files(folder, {"rcv1v2.topics.qrels.gz": gzip.compress(official.rcv1_qrels().encode())})


def bgc(folder: Path) -> Path:
    genres = ["<d0>Fiction</d0><d1>Mystery & Suspense</d1>", "<d0>Nonfiction</d0>", "<d0>Fiction</d0>"]
    files = {
        f"BlurbGenreCollection_EN_{split}.txt": "".join(
            official.bgc_book(number, f"Blurb {number}.", genres[number % 3]) for number in range(count)
        ).encode()
        for split, count in (("train", 32), ("dev", 12), ("test", 12))
    }
    return official.write_files(folder, {**files, "hierarchy.txt": official.bgc_files()["hierarchy.txt"]})


def voc2007(folder: Path) -> Path:
    official.write_tar(folder / "VOCtrainval_06-Nov-2007.tar", official.voc_files("trainval", range(1, 25)))
    official.write_tar(folder / "VOCtest_06-Nov-2007.tar", official.voc_files("test", range(25, 49)))
    return folder


def coco2014(folder: Path) -> Path:
    return official.write_files(
        folder,
        {
            "annotations/instances_train2014.json": official.coco_instances("train", 24),
            "annotations/instances_val2014.json": official.coco_instances("val", 24),
            **official.coco_images("train", 25),
            **official.coco_images("val", 25),
        },
    )


def nuswide(folder: Path) -> Path:
    return official.write_files(folder, {**official.nus_lists(60), **official.nus_images(60)})


def semeval2018(folder: Path) -> Path:
    rows = [f"{i}\tone tweet about number {i}\t{i % 2}\t{int(i % 3 == 0)}\t{int(i % 5 == 0)}" for i in range(24)]
    body = "\n".join(["ID\tTweet\tanger\tjoy\ttrust", *rows, ""])
    return official.write_files(folder, {f"2018-E-c-En-{part}.txt": body for part in ("train", "dev", "test-gold")})


def newsgroups20(folder: Path) -> Path:
    files = {
        f"20news-bydate-{part}/{group}/{number}": f"Subject: {part} post number {number} about {group}\n".encode()
        for part in ("train", "test")
        for group in ("alt.atheism", "sci.space", "rec.autos")
        for number in range(20)
    }
    return official.write_tar(folder / "20news-bydate.tar.gz", files, "w:gz").parent


CORPORA = {make.__name__: make for make in (aapd, bgc, coco2014, newsgroups20, nuswide, rcv1, semeval2018, voc2007)}
TEXTS = ("aapd", "bgc", "newsgroups20", "rcv1", "semeval2018")

QUICK = [
    *("--num_train_epochs", "1", "--global_batch_size", "8", "--per_device_eval_batch_size", "16"),
    *("--dataloader_num_workers", "0", "--linear_epochs", "2", "--linear_batch_size", "8"),
    *("--report_to", "none", "--use_cpu", "--disable_tqdm", "True"),
]
"""Arguments that make a recipe end within seconds, with those of `QUICK_KIND`."""
QUICK_KIND = {"text": ["--max_length", "16"], "image": ["--image_size", "32", "--augmented_passes", "2"]}
