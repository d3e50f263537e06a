-- The buckets that are noted under the joint of a first answer.
return redis.call('SMEMBERS', KEYS[1])
