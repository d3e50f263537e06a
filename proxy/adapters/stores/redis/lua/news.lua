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
