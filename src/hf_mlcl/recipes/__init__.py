"""The study's settings, one file per corpus: data for the package, and programs for people.

``recipes`` at the top of the repository is a link to this folder, so that the settings stand in one place. Every
argument of the training can be set on the command line; ``--help`` lists them, ``--dry_run`` shows what came of it. A
tuple holds what the study tried: the first is used.
"""

RECIPES = {
    "aapd": "aapd_reg",
    "bgc": "bgc_reg",
    "coco2014": "coco2014_reg",
    "newsgroups20": "newsgroups20_supcon",
    "nuswide": "nuswide_reg",
    "rcv1": "rcv1_reg",
    "semeval2018": "semeval2018_reg",
    "toy_images": "toy_images_reg",
    "toy_text": "toy_text_reg",
    "voc2007": "voc2007_reg",
}
"""The module of each corpus's recipe."""
