--- add_to_hour
-- Add amounts to the bills of an hour. The name of each amount says what it is an amount of, and the model.
-- ARGV: ttl; name of the writer, number of its group; then names and amounts, in turn.
add_group(KEYS[1], ARGV[2], ARGV[3], 4)
redis.call('PEXPIRE', KEYS[1], ARGV[1])

--- add_to_session
-- Add amounts to a session's bill, which expires with the session. Nothing is added if the session existed
-- once and no longer does. ARGV: as for `add_to_hour`; the ttl is used if the session is not stored yet.
local session = KEYS[1]
local left = redis.call('PTTL', session)
if left < 0 and redis.call('EXISTS', session .. WAS) == 1 then return end
add_group(session .. BILL, ARGV[2], ARGV[3], 4)
redis.call('PEXPIRE', session .. BILL, left < 0 and ARGV[1] or left)
