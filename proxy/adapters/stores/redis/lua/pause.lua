-- Pause a session or let it go on; answer whether there is such a session.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 0 then return 0 end
if ARGV[1] == '1' then redis.call('HSET', session, 'paused', 1) else redis.call('HDEL', session, 'paused') end
return 1
