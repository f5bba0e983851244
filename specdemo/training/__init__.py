"""Training of drafts: prompts, text that the target writes, distillation, n-gram tables, and evaluation."""
