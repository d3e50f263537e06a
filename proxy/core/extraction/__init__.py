"""What a text says that must not be lost: exact facts, and what somebody demands or forbids."""
