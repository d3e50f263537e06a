-- What every script begins with: all keys of a session live equally long.
local function renew(session, ttl)
  redis.call('PEXPIRE', session, ttl)
  for _, part in ipairs({NODES, COUNTS, PARTIAL, SUMMARIES, LANES}) do
    redis.call('PEXPIRE', session .. part, ttl)
  end
  for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do
    redis.call('PEXPIRE', session .. EPOCHS .. lane, ttl)
  end
end
