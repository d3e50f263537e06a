-- Keep a summary, and the session with it.
local session = KEYS[1]
redis.call('HSET', session .. SUMMARIES, ARGV[1], ARGV[2])
renew(session, ARGV[3])
