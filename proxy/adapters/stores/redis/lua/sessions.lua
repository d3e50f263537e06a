--- begin_epoch
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

--- pin
-- Pin messages by their chain hashes, each once. They stay for as long as the session.
local session, ttl = KEYS[1], ARGV[1]
local pins = redis.call('HGET', session, 'pins') or ''
if #pins % HASH > 0 then return redis.error_reply('the pins cannot be read') end
local known = {}
for i = 1, #pins, HASH do known[string.sub(pins, i, i + HASH - 1)] = true end
local fresh = {pins}
for i = 2, #ARGV do
  if not known[ARGV[i]] then fresh[#fresh + 1] = ARGV[i] end
  known[ARGV[i]] = true
end
redis.call('HSET', session, 'pins', table.concat(fresh))
renew(session, ttl)

--- keep_hidden
-- Keep what stands upstream for an answer, unless something does: the first written counts. Answer whether it is
-- kept, or was; it is not where its session is gone, unless it begins one.
local session = KEYS[1]
local answer, hidden, ttl, begins = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
if not begins and redis.call('EXISTS', session) == 0 then return 0 end
if redis.call('SADD', session .. HIDES, answer) == 1 then redis.call('RPUSH', session .. HIDDEN, hidden) end
renew(session, ttl)
return 1

--- inject
-- Keep what is handed in for a session, unless something was before that has another digest than `after`. Answers
-- what stands.
local session, ttl, digest, injection, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('HMGET', session, 'injection', 'injected')
if not held[1] or held[2] == after then
  redis.call('HSET', session, 'injection', injection, 'injected', digest)
end
renew(session, ttl)
return redis.call('HGET', session, 'injection')

--- mark_unsaved
-- Note which turn's client was told that it is not saved.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 1 then redis.call('HSET', session, 'unsaved', ARGV[1]) end

--- pause
-- Pause a session or let it go on; answer whether there is such a session.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 0 then return 0 end
if ARGV[1] == '1' then redis.call('HSET', session, 'paused', 1) else redis.call('HDEL', session, 'paused') end
return 1

--- news
-- Read a session and what of its messages is new, for who has read the others: nothing where they are not
-- what they were, or too many are new. Writes nothing: a full server and a replica run it.
local session = KEYS[1]
local life, read = ARGV[1], tonumber(ARGV[2])

local is_life, news, count = unpack(redis.call('HMGET', session, 'life', 'news', 'count'))
if is_life ~= life or tonumber(count) ~= redis.call('HLEN', session .. NODES) then return false end
local fresh = count - read
if fresh < 0 or fresh * HASH > #news then return false end

local nodes = {}
for i = #news - fresh * HASH + 1, #news, HASH do
  local hash = string.sub(news, i, i + HASH - 1)
  local node = redis.call('HGET', session .. NODES, hash)
  if not node then return false end
  nodes[#nodes + 1] = hash
  nodes[#nodes + 1] = node
end
return {redis.call('HMGET', session, unpack(FIELDS)), redis.call('LINDEX', session .. LINE, 0), nodes}

--- delete
-- Forget a session, all but that there was one; answer whether there was, and under which tag its bucket is noted.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid = ARGV[1]
local was, first = redis.call('EXISTS', session), redis.call('HGET', session, 'first')
for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do redis.call('DEL', session .. EPOCHS .. lane) end
for _, part in ipairs({'', LINE, LEASES, CLAIMS, unpack(PARTS)}) do redis.call('DEL', session .. part) end
local entries = redis.call('HGETALL', tips)
for i = 1, #entries, 2 do
  if string.find(entries[i + 1], sid, 1, true) and #alive(bucket, entries[i + 1], 1) == 0 then
    redis.call('HDEL', tips, entries[i])
  end
end
if was == 1 then redis.call('SET', session .. WAS, 1, 'PX', REMEMBERED) end
return {was, first}

--- first
-- The buckets that are noted under the joint of a first answer.
return redis.call('SMEMBERS', KEYS[1])

--- note_first
-- Note under the joint of a first answer in which bucket its session is kept, or without a ttl no longer. Of two
-- there is no third: where there are several it is none.
local first, tag, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
if ttl == 0 then return redis.call('SREM', first, tag) end
if redis.call('SISMEMBER', first, tag) == 0 and redis.call('SCARD', first) < 2 then redis.call('SADD', first, tag) end
if redis.call('PTTL', first) < ttl then redis.call('PEXPIRE', first, ttl) end

--- list
-- Enter sessions into the listing by their last use, and let it forget those used longest ago.
local sessions, ttl, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
redis.call('ZADD', sessions, 'GT', unpack(ARGV, 3))
redis.call('ZREMRANGEBYRANK', sessions, 0, -most - 1)
if redis.call('PTTL', sessions) < tonumber(ttl) then redis.call('PEXPIRE', sessions, ttl) end

--- put
-- Write all keys of what has moved here, unless it has begun anew; answer whether they were written. Of each key
-- there is its suffix, the command that writes it, the number of words, and these; without a ttl they live for ever.
local name, ttl = KEYS[1], tonumber(ARGV[1])
if redis.call('EXISTS', name) == 1 then return 0 end
local at = 2
while at < #ARGV do
  local key, command, last = name .. ARGV[at], ARGV[at + 1], at + 2 + ARGV[at + 2]
  for first = at + 3, last, 1000 do  -- Lua's stack holds about 8,000
    redis.call(command, key, unpack(ARGV, first, math.min(first + 999, last)))
  end
  if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
  at = last + 1
end
return 1
