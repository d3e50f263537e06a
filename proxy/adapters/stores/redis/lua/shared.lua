-- What every script begins with.

-- Those of the sessions that an entry of the tips names that are still there; of many, the first `most`. One that
-- is named by a joint is followed by what was said there: `sid/chain hash in hex`.
local function alive(bucket, holders, most)
  local living = {}
  for holder in string.gmatch(holders or '', '[^,]+') do
    if #living == most then break end
    local sid = string.match(holder, '^[^/]*')
    if redis.call('EXISTS', bucket .. sid) == 1 then living[#living + 1] = holder end
  end
  return living
end

-- Whether a record may be replaced: it is of our own kind, or damaged, for none begins with 0, 255 or a
-- printable character. One of another release, or sealed with another secret, stays as it is.
local function is_ours(record)
  local first = string.byte(record) or 0
  if first == 0 or first == 255 or (first >= 32 and first < 127) then return true end
  for _, beginning in ipairs(OURS) do
    if string.sub(record, 1, #beginning) == beginning then return true end
  end
  return false
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who has the lease on writing a summary ('' for nobody), and until when.
local function holder(session, address)
  local token, ends = string.match(redis.call('HGET', session .. CLAIMS, address) or '', '^(%S+) (%d+)$')
  if not token or tonumber(ends) <= now() then return '', 0 end
  return token, tonumber(ends)
end

-- All keys of a session live equally long; that there was one is known for a while after.
local function renew(session, ttl)
  redis.call('PEXPIRE', session, ttl)
  redis.call('PEXPIRE', session .. WAS, ttl + REMEMBERED)
  for _, part in ipairs({NODES, TEXTS, COUNTS, PARTIAL, BESIDE, SUMMARIES, LANES, HIDDEN, HIDES}) do
    redis.call('PEXPIRE', session .. part, ttl)
  end
  for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do
    redis.call('PEXPIRE', session .. EPOCHS .. lane, ttl)
  end
end
