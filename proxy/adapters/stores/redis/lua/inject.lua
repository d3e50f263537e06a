-- Keep what is handed in for a session, unless something was before. Answers what stands.
local session, ttl, digest, injection = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
if redis.call('HSETNX', session, 'injection', injection) == 1 then
  redis.call('HSET', session, 'injected', digest)
end
renew(session, ttl)
return redis.call('HGET', session, 'injection')
