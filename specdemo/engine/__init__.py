"""The algorithm: tensors and token ids in, rounds out. No model, no text, no page."""
