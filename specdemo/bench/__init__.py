"""Benches of speculative decoding over prompt sets, against the target alone and against other libraries."""
