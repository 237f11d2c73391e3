"""Contract suites: subclassed by the tests of each implementation."""
