"""The Chat Completions API, as OpenAI's API reference describes it."""
