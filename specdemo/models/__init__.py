"""Fast execution of language models over a static cache, and the file formats of drafts."""
