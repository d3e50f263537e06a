"""What people decide: policies, their sections, and which of them a request gets."""
