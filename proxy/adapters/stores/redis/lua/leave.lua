-- Give up a place in a session's line.
local session = KEYS[1]
redis.call('LREM', session .. LINE, 1, ARGV[1])
redis.call('HDEL', session .. LEASES, ARGV[1])
