"""Games in which visitors, or the students of a class, write the drafts and the target verifies them."""
