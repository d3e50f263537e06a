"""Conversations: message identity, units that are cut or kept together, notes, and stored records."""
