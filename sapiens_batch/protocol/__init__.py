"""What a job is and what it has done: spec, plan, receipts, commits, manifest.

Pure records and decisions over a `storage.Store`; nothing here reads images or runs models.
"""
