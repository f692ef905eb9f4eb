"""The colours of all figures; apart from them, so that whoever needs colours loads nothing else."""

BLUE, ORANGE, GREEN, GREY = "#2a6fbb", "#d9772b", "#3a9d5d", "#8a8f98"
PALETTE = [BLUE, ORANGE, GREEN, "#b5478f", "#7a5cc2", "#c8a415", "#3aa7a7", "#a0522d", "#5b7f2b", "#d1495b"]
