"""Passes over a Llama-type model on a CPU, as one function compiled by numba."""
