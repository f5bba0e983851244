"""Training of drafts: prompts, the target's own text, a distilled draft or an n-gram table, evaluation."""
