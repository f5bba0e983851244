"""The quiz: the visitor predicts a result, then a measurement on the loaded models gives the answer."""
