"""The program ``hf-mlcl``: one module per command, and nothing heavy imported before a command needs it."""

from __future__ import annotations


def main() -> None:
    """Run the program."""
    from hf_mlcl.cli.app import app

    app()


__all__ = ["main"]
