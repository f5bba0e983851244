"""Classes, in which students' devices follow a teacher's page: rooms, messages, questions and games."""
