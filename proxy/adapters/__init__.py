"""The adapters: implementations of the ports. Each outside library is used in one place only."""
