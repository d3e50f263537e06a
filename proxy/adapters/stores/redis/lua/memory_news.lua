-- Read a scope and what of its items is new, for who has read the others: nothing where that cannot be told, or is
-- much. Writes nothing: a full server and a replica run it.
local scope, since = KEYS[1], ARGV[1]
local fields = redis.call('HMGET', scope, unpack(SCOPE_FIELDS))
local version, floor = tonumber(fields[1]) or 0, tonumber(fields[2]) or 0
if tonumber(since) < floor or tonumber(since) > version then return false end
local changed = redis.call('ZRANGEBYSCORE', scope .. CHANGED, '(' .. since, '+inf', 'LIMIT', 0, NEWS_ITEMS + 1)
if #changed > NEWS_ITEMS then return false end
local items = #changed > 0 and redis.call('HMGET', scope .. ITEMS, unpack(changed)) or {}
return {fields, changed, items, redis.call('ZRANGEBYSCORE', scope .. GONE, '(' .. since, '+inf')}
