"""The job as a Ray Data graph, and the driver that seals and commits what comes out of it.

The only package that imports ray. It decides what runs where; how to read, decode, label and store
is left to the packages below.
"""
