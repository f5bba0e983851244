"""Paths of the files that are installed with the program."""

from pathlib import Path

_INSTALLED = Path(__file__).parent / "assets"
ASSETS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parent.parent / "assets"  # in a checkout
BUILT_IN = "built-in"  # the name of the built-in target and draft in requests and options
BUILT_IN_DRAFT = ASSETS / "draft"
BUILT_IN_FEATURE_DRAFT = ASSETS / "feature-draft"
BUILT_IN_N_GRAM = ASSETS / "n-gram"
PROMPTS = ASSETS / "prompts.jsonl"
RECORDINGS = ASSETS / "recordings"
