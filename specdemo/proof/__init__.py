"""Proofs that speculative output is the target's: audits token by token, and a test of distributions."""
