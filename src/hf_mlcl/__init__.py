"""hf-mlcl: multi-label contrastive learning for the Hugging Face ecosystem."""
