"""Speculative decoding you can watch: engine, race, page, bench and training."""

__version__ = "0.1.0"
