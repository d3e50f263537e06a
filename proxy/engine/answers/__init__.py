"""The upstream's answer on its way: refusals, added parameters, and calls that the proxy answers itself."""
