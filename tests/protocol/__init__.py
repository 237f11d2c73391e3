"""Tests of the documents and decisions of a job."""
