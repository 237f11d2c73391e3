"""Work that may die or hang, done in a process of its own.

What is asked and answered is left to the packages above.
"""
