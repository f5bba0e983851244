"""The web page: the only part of the program that imports Gradio."""
