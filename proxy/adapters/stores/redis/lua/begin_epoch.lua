-- Append an epoch if its lane holds as many as were seen; answer all from there on, whoever wrote them.
local session = KEYS[1]
local lane, seen, epoch, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local epochs = session .. EPOCHS .. lane
if redis.call('LLEN', epochs) == tonumber(seen) then
  redis.call('RPUSH', epochs, epoch)
  redis.call('SADD', session .. LANES, lane)
end
renew(session, ttl)
return redis.call('LRANGE', epochs, seen, -1)
