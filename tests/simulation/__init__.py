"""The commit protocol in a simulator: whole jobs in memory, without Ray, with faults at hand."""
