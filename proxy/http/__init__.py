"""The edge: the wire guard, the managed route, the relay and the admin API."""
