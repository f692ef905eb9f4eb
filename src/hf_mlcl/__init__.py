"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem."""

from hf_mlcl.data.registry import list_corpora, load_corpus

__all__ = ["list_corpora", "load_corpus"]
