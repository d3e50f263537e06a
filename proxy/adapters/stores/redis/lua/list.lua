-- Enter sessions into the listing by their last use, and let it forget those used longest ago.
local sessions, ttl, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
redis.call('ZADD', sessions, 'GT', unpack(ARGV, 3))
redis.call('ZREMRANGEBYRANK', sessions, 0, -most - 1)
if redis.call('PTTL', sessions) < tonumber(ttl) then redis.call('PEXPIRE', sessions, ttl) end
