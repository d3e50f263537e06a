-- Keep a summary, and the session with it; not where the session was deleted while it was being written.
local session = KEYS[1]
if redis.call('EXISTS', session) == 0 and redis.call('EXISTS', session .. WAS) == 1 then return end
redis.call('HSET', session .. SUMMARIES, ARGV[1], ARGV[2])
renew(session, ARGV[3])
