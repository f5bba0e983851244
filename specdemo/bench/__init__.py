"""Speculation measured over prompts, beside the target alone and beside other libraries."""
