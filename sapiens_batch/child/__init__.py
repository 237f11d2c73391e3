"""Work that may die or hang, done in a process of its own.

`child` is the side that asks, `__main__` the side that answers, `channel` what runs between them,
and `memory` how pixels get across. What is asked and answered is left to the packages above.
"""
