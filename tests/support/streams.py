"""Event streams of answers, each odd in its own way, as upstreams write them."""

USAGE = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":9}}\n\n'
STREAMS = {
    "a BOM, comments, blank lines and unknown events": (
        b"\xef\xbb\xbf: hello\n\nevent: x_future\nid: 7\nretry: 5\ndata: {}\n\n\n\nfuture: field\n\n"
        b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
        + USAGE
        + b"data: [DONE]\n\n: bye\n\n"
    ),
    "text of many bytes a character": (
        'data: {"choices":[{"index":0,"delta":{"content":"Grüße \u2028 🐘 日本"}}]}\n\n'
        'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'
        'data:{"choices":[{"index":0,"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n'
    ).encode()
    + USAGE
    + b"data: [DONE]\n\n",
    "data of several lines": (
        b'event: message\ndata: {"choices":[{"index":0,\ndata: "delta":{"content":"x"}}],\n'
        b'data:"usage":null}\n\n'
        b'data: {"choices":[],\ndata: "usage":{"prompt_tokens":9}}\n\ndata: [DONE]\n\n'
    ),
    "an error in mid-stream": (
        b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
        b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n'
    ),
    "llama.cpp's own error field": (
        b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
        b'error: {"code":500,"message":"no slot"}\n\ndata: [DONE]\n\n'
    ),
    "two choices, one of them cut off": (
        b'data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    ),
    "interleaved calls": (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f",'
        b'"arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":""}}]}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}'
        b"]}}]}\n\n"
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"[]"}}]},'
        b'"finish_reason":"tool_calls"}]}\n\n' + USAGE + b"data: [DONE]\n\n"
    ),
    "an end within an event": b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\ndata: {"choi',
}
