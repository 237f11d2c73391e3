"""The commit protocol in a simulator: whole jobs in memory, without Ray, with every fault at hand."""
