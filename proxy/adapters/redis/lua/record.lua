-- Write a turn: nodes that are new, then the session's own fields, then the tips.
-- The first bytes of a node stay, but a completed answer takes the place of one that was cut off. The tip of
-- a main line moves where the new one is news and goes on from what is known, or where there was none; that
-- of an appended turn moves from where the turn was begun, and from nowhere else. Answers the session's
-- fields then, its record only where that is not the turn's; or why nothing was written.
local session, tips, bucket = KEYS[1], KEYS[2], KEYS[3]
local sid, ttl, record, created, tip = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local headerless, appended, begun_at, remembered = ARGV[6] == '1', ARGV[7] == '1', ARGV[8], ARGV[9]
local outer = 11                      -- the outer parents; the nodes follow, four arguments each
local first = outer + ARGV[10]

-- Words that began a line beside the main one say nothing when they are said again; their answers do.
local function joins(hash) return redis.call('SISMEMBER', session .. BESIDE, hash) == 0 end

local joined = false
for i = outer, first - 1 do
  if redis.call('HEXISTS', session .. NODES, ARGV[i]) == 0 then return 'torn' end
  joined = joined or joins(ARGV[i])
end
local had = redis.call('HGET', session, 'tip') or ''
if appended and had ~= begun_at and had ~= tip then return 'moved' end

-- An answer whose node came before, with a history that overtook its turn, is counted when the turn comes; its
-- count begins with a `+` from then on.
local function comes_late(hash, kind)
  local count = kind == 'answer' and redis.call('HGET', session .. COUNTS, hash)
  if not count or string.sub(count, 1, 1) == '+' then return false end
  redis.call('HSET', session .. COUNTS, hash, '+' .. count)
  return true
end

local function write(hash, node, tokens, kind)
  local new = redis.call('HSETNX', session .. NODES, hash, node) == 1
  if not new and kind == 'answer' and redis.call('SREM', session .. PARTIAL, hash) == 1 then
    redis.call('HSET', session .. NODES, hash, node)
    new = true
  end
  joined = joined or (not new and kind == 'message' and joins(hash))
  if new then redis.call('HSET', session .. COUNTS, hash, (kind == 'answer' and '+' or '') .. tokens) end
  if new and kind == 'partial' then redis.call('SADD', session .. PARTIAL, hash) end
  return new
end

local fresh, completed = {}, 0
for i = first, #ARGV, 4 do
  local hash, kind = ARGV[i], ARGV[i + 3]
  if write(hash, ARGV[i + 1], ARGV[i + 2], kind) then
    fresh[hash] = true
    if kind == 'answer' then completed = completed + 1 end
  elseif comes_late(hash, kind) then
    completed = completed + 1
  end
end

local is_changed = false
if appended and tip == '' then redis.call('HDEL', session, 'unsaved') end
if record ~= '' then
  redis.call('HSETNX', session, 'created', created)
  redis.call('HINCRBY', session, 'turns', completed)
  redis.call('HINCRBY', session, 'written', 1)
  if appended or next(fresh) or redis.call('HEXISTS', session, 'record') == 0 then
    redis.call('HSET', session, 'record', record)
    is_changed = true
  end
  local moves = tip ~= '' and (appended or had == '' or (joined and fresh[tip]))
  if moves then redis.call('HSET', session, 'tip', tip) end
  for i = outer, first - 1 do
    if moves then redis.call('SREM', session .. BESIDE, ARGV[i]) end
  end
  for i = first, #ARGV, 4 do
    if moves then redis.call('SREM', session .. BESIDE, ARGV[i])
    elseif not joined and ARGV[i + 3] == 'message' then redis.call('SADD', session .. BESIDE, ARGV[i]) end
  end
end
renew(session, ttl)
local fields = redis.call('HMGET', session, unpack(FIELDS))
if is_changed then fields[1] = false end

if not headerless then
  redis.call('SET', session .. WAS, 1, 'PX', remembered)
  return fields
end
for i = first, #ARGV, 4 do
  if ARGV[i + 3] ~= 'message' then
    local holders = alive(bucket, redis.call('HGET', tips, ARGV[i]))
    local here = false
    for _, holder in ipairs(holders) do here = here or holder == sid end
    if not here then
      holders[#holders + 1] = sid
      redis.call('HSET', tips, ARGV[i], table.concat(holders, ',', math.max(1, #holders - 15)))
    end
  end
end
local sample = redis.call('HRANDFIELD', tips, 4, 'WITHVALUES')
for i = 1, #sample, 2 do
  if #alive(bucket, sample[i + 1]) == 0 then redis.call('HDEL', tips, sample[i]) end
end
if redis.call('PTTL', tips) < tonumber(ttl) then redis.call('PEXPIRE', tips, ttl) end
return fields
