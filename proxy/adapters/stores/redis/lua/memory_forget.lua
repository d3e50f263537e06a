-- Delete every key of a scope; answer how many there were, and in which workspace it lay.
local scope = KEYS[1]
local workspace = redis.call('HGET', scope, 'workspace')
local count = redis.call('UNLINK', scope)
for _, part in ipairs(SCOPE_PARTS) do count = count + redis.call('UNLINK', scope .. part) end
redis.call('DEL', scope .. CLAIMS)
return {count, workspace}
