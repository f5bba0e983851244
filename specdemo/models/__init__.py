"""Language models, run fast over a static cache: weights, attention, passes, and the files of drafts."""
