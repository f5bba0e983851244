"""School classes whose students follow a teacher's page: rooms, messages, questions and games."""
