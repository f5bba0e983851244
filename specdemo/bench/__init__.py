"""Measurements of speculation over prompts, compared with the target alone and with other libraries."""
