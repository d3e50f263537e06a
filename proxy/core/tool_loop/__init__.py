"""Calls that the proxy answers by itself: an answer without them, as if they had never been made.

Sans-I/O. :mod:`proxy.core.tool_loop.stream` edits a stream while it passes,
:mod:`proxy.core.tool_loop.completion` an answer in one piece; both say which calls are to be answered and are
told what became of them, and both tell the client the same.
"""
