"""Distil a draft from a target: prompt pool -> the target's own text -> student -> evaluation -> card.

Each stage is a module that reads the previous stage's files and can resume; ``stages`` runs them.
Nothing here is needed to run the app, which only loads the folder that comes out.
"""
