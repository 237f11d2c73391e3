"""How labels become bytes and back: tables as Parquet, dense arrays as Zarr.

Each format is one module with the writing and its inverse side by side. Where the bytes go, and
when they become visible, is left to the pipeline.
"""
