"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem."""

from hf_mlcl.losses import build_loss, list_losses, register_loss

__all__ = ["build_loss", "list_losses", "register_loss"]
