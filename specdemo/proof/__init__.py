"""Proofs that speculative output is the target's: token-by-token audits, and a distribution test."""
