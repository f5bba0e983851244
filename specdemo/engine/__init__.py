"""The algorithm: drafting, verification and acceptance. It maps token ids to rounds."""
