"""The algorithm: tensors and token ids in, rounds out."""
