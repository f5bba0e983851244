"""The folder of compiled code, which all test processes and the program share: compiling takes seconds."""

from specdemo.pairs.builtin_target import cache_folder

CODE = cache_folder() / "compiled"
