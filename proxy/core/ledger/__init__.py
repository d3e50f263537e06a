"""The ledger: facts that are carried word for word out of what was cut, found by code alone."""
