"""The folder of compiled code, which all test processes and the program share: compiling takes seconds."""

from specdemo.pairs.cache_folder import cache_folder

CODE = cache_folder() / "compiled"
