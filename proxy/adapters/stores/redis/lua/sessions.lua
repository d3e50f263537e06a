--- begin_epoch
-- Append an epoch if its lane still has as many epochs as the caller knows (compare and set). Returns the epochs
-- that the caller does not know: the new one, or those that others have written instead. If the session is gone,
-- nothing is stored and none returned, unless this may be the session's first write (`begins`).
local session = KEYS[1]
local lane, known, epoch, ttl, begins = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
if not begins and redis.call('EXISTS', session) == 0 then return {} end
local epochs = session .. EPOCHS .. lane
if redis.call('LLEN', epochs) == tonumber(known) then
  redis.call('RPUSH', epochs, epoch)
  redis.call('SADD', session .. LANES, lane)
end
keep(session, ttl)
return redis.call('LRANGE', epochs, known, -1)

--- pin
-- Pin messages by their chain hashes, each once. Pins live as long as the session.
-- ARGV: ttl, then the hashes.
local session, ttl = KEYS[1], ARGV[1]
local pins = redis.call('HGET', session, 'pins') or ''
if #pins % HASH > 0 then return redis.error_reply('the pins cannot be read') end
local is_pinned = {}
for i = 1, #pins, HASH do is_pinned[string.sub(pins, i, i + HASH - 1)] = true end
local all = {pins}
for i = 2, #ARGV do
  if not is_pinned[ARGV[i]] then all[#all + 1] = ARGV[i] end
  is_pinned[ARGV[i]] = true
end
redis.call('HSET', session, 'pins', table.concat(all))
keep(session, ttl)

--- keep_hidden
-- Store the messages that stand for an answer upstream, unless some are stored already: the first write counts.
-- Returns 1 if some are stored now. If the session is gone, nothing is stored and 0 returned, unless this is the
-- session's first write (`begins`).
local session = KEYS[1]
local answer, hidden, ttl, begins = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
if not begins and redis.call('EXISTS', session) == 0 then return 0 end
if redis.call('SADD', session .. HIDES, answer) == 1 then redis.call('RPUSH', session .. HIDDEN, hidden) end
keep(session, ttl)
return 1

--- inject
-- Store a session's injection, unless it has one whose digest is not `after`. Returns the injection in force.
local session, ttl, digest, injection, after = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local existing, existing_digest = unpack(redis.call('HMGET', session, 'injection', 'injected'))
if not existing or existing_digest == after then
  redis.call('HSET', session, 'injection', injection, 'injected', digest)
end
keep(session, ttl)
return redis.call('HGET', session, 'injection')

--- mark_unsaved
-- Note the answer (a chain hash) whose client was told that its turn is not saved.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 1 then redis.call('HSET', session, 'unsaved', ARGV[1]) end

--- pause
-- Pause a session ('1') or let it go on. Returns 1 if the session exists.
local session = KEYS[1]
if redis.call('HEXISTS', session, 'record') == 0 then return 0 end
if ARGV[1] == '1' then redis.call('HSET', session, 'paused', 1) else redis.call('HDEL', session, 'paused') end
return 1

--- news
-- Read a session and its new messages, for a caller that has read all others: how many, and in which `life` of
-- the session. Returns false if messages read before may have changed, or if too many are new. The script writes
-- nothing, so it also runs on a server whose memory is full, and on a replica.
local session = KEYS[1]
local life_read, count_read = ARGV[1], tonumber(ARGV[2])

local life, news, count = unpack(redis.call('HMGET', session, 'life', 'news', 'count'))
if life ~= life_read or tonumber(count) ~= redis.call('HLEN', session .. NODES) then return false end
local new = count - count_read
if new < 0 or new * HASH > #news then return false end

local nodes = {}
for i = #news - new * HASH + 1, #news, HASH do
  local hash = string.sub(news, i, i + HASH - 1)
  local node = redis.call('HGET', session .. NODES, hash)
  if not node then return false end
  nodes[#nodes + 1] = hash
  nodes[#nodes + 1] = node
end
return {redis.call('HMGET', session, unpack(FIELDS)), redis.call('LINDEX', session .. LINE, 0), nodes}

--- delete
-- Delete a session, or what was written before its first turn, except the mark that it existed. Returns how many
-- keys it had, the tag of its first answer, under which its own tag is noted, and what else is noted of it.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid, at = ARGV[1], string.format('%.0f', now())
local first, noted, deleted = redis.call('HGET', session, 'first'), redis.call('SMEMBERS', session .. NOTED), 0
for _, lane in ipairs(redis.call('SMEMBERS', session .. LANES)) do redis.call('DEL', session .. EPOCHS .. lane) end
for _, part in ipairs({'', unpack(PARTS)}) do deleted = deleted + redis.call('DEL', session .. part) end
redis.call('DEL', session .. LINE, session .. LEASES, session .. CLAIMS)
local entries = redis.call('HGETALL', tips)
for i = 1, #entries, 2 do
  if string.find(entries[i + 1], sid, 1, true) and #alive(bucket, entries[i + 1], 1) == 0 then
    redis.call('HDEL', tips, entries[i])
  end
end
if deleted > 0 then redis.call('SET', session .. WAS, at, 'PX', REMEMBERED) end
return {deleted, first, noted}

--- first
-- Returns the tags of the sessions whose first answer has this tag.
return redis.call('SMEMBERS', KEYS[1])

--- note_first
-- Note a session's tag under the tag of its first answer, or remove it (ttl 0). More than two are never noted:
-- two are already ambiguous, and lead to no session.
local first, tag, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
if ttl == 0 then return redis.call('SREM', first, tag) end
if redis.call('SISMEMBER', first, tag) == 0 and redis.call('SCARD', first) < 2 then redis.call('SADD', first, tag) end
if redis.call('PTTL', first) < ttl then redis.call('PEXPIRE', first, ttl) end

--- note_suffix
-- Note a place of a session, as the newest under its tag, or remove it (ttl 0).
local places, place, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
redis.call('LREM', places, 0, place)
if ttl == 0 then return end
redis.call('LPUSH', places, place)
redis.call('LTRIM', places, 0, SUFFIXES - 1)
if redis.call('PTTL', places) < ttl then redis.call('PEXPIRE', places, ttl) end

--- list
-- Add sessions to the listing by their last use, and drop those unused for longest.
-- ARGV: ttl, how many to keep, then times and sessions, in turn.
local sessions, ttl, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
redis.call('ZADD', sessions, 'GT', unpack(ARGV, 3))
redis.call('ZREMRANGEBYRANK', sessions, 0, -most - 1)
if redis.call('PTTL', sessions) < tonumber(ttl) then redis.call('PEXPIRE', sessions, ttl) end

--- state
-- Returns what tells whether a session or a scope has changed; '' if there is none.
return state_of(KEYS[1])

--- put
-- Write all keys of a session or scope that is moved here, in place of one whose state is `before` ('': of none).
-- Returns its state, or '' if nothing was written, because what is here has another state. ARGV: `before`, ttl (0 for
-- none); then for each key its suffix, the command that writes it, the number of words, and the words.
local name, before, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
if state_of(name) ~= before then return '' end
if before ~= '' then drop(name) end
local at = 3
while at < #ARGV do
  local key, command, last = name .. ARGV[at], ARGV[at + 1], at + 2 + ARGV[at + 2]
  for first = at + 3, last, 1000 do  -- the stack of Lua holds about 8,000 values
    redis.call(command, key, unpack(ARGV, first, math.min(first + 999, last)))
  end
  if ttl > 0 then redis.call('PEXPIRE', key, ttl) end
  at = last + 1
end
return state_of(name)

--- remove
-- Delete a session or scope that was moved away, if it still has the state in which it was read. Returns 1 if so.
local name = KEYS[1]
if state_of(name) ~= ARGV[1] then return 0 end
drop(name)
redis.call('DEL', name .. LINE, name .. LEASES, name .. CLAIMS, name .. WAS)
return 1
