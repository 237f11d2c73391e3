"""Commands of the command line, one module a group; `cli` registers them.

A command parses, calls and shows; work is left to the packages below, which are imported when the
command runs.
"""
