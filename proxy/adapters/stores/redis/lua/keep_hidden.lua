-- Keep what stands upstream for an answer, unless something does: the first written counts. Answer whether it is
-- kept, or was; it is not where its session is gone, unless it begins one.
local session = KEYS[1]
local answer, hidden, ttl, begins = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
if not begins and redis.call('EXISTS', session) == 0 then return 0 end
if redis.call('SADD', session .. HIDES, answer) == 1 then redis.call('RPUSH', session .. HIDDEN, hidden) end
renew(session, ttl)
return 1
