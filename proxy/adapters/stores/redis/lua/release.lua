-- Give up the lease on writing a summary, if it is still held.
local session = KEYS[1]
if holder(session, ARGV[1]) == ARGV[2] then redis.call('HDEL', session .. CLAIMS, ARGV[1]) end
