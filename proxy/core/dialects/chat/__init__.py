"""Chat Completions, as OpenAI's API reference writes them."""
