"""Keeping the libraries below quiet."""

from __future__ import annotations


def quiet_libraries() -> None:
    """No bars and no notes of the libraries below: what is printed is the result. Training keeps its own bar."""
    import datasets
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
