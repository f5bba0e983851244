"""Classes that follow a teacher's page: rooms, what they show, questions and games."""
