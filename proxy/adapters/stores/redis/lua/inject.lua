-- Keep what is handed in for a session, unless something was before that has another digest than `after`. Answers
-- what stands.
local session, ttl, digest, injection, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('HMGET', session, 'injection', 'injected')
if not held[1] or held[2] == after then
  redis.call('HSET', session, 'injection', injection, 'injected', digest)
end
renew(session, ttl)
return redis.call('HGET', session, 'injection')
