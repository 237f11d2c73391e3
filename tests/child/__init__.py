"""Tests of one part of the package; a package, so that test files may share names."""
