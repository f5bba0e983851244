"""Distil a draft model from a target: corpus -> teacher labels -> student.

Each stage is a module that reads the previous stage's files and can resume. Nothing here is needed
to run the app; the app needs only what ``distil`` exports.
"""
