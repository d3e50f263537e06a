--- add_to_hour
-- Add amounts to the bills of an hour, each under what it is of and its model.
add_group(KEYS[1], ARGV[2], ARGV[3], 4)
redis.call('PEXPIRE', KEYS[1], ARGV[1])

--- add_to_session
-- Add amounts to a session's bill, which ends with the session; of one that has gone nothing is kept.
local session = KEYS[1]
local left = redis.call('PTTL', session)
if left < 0 and redis.call('EXISTS', session .. WAS) == 1 then return end
add_group(session .. BILL, ARGV[2], ARGV[3], 4)
redis.call('PEXPIRE', session .. BILL, left < 0 and ARGV[1] or left)
