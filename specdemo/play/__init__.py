"""Games in which visitors or a class write the drafts and the target verifies them."""
