"""The drafters, one module for each way to propose draft tokens."""
