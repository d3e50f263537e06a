"""HTTP/1.1 as we serve it: the guard of the wire, connections, and an orderly end."""
