"""Passes over a Llama-type model on a GPU, as Triton kernels recorded in one CUDA graph."""
