"""Encoded bytes to model inputs: decode, geometry, views. numpy, OpenCV and Pillow, no torch."""
