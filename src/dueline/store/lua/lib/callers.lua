-- callers: forgets the remembered calls of processes that are gone, once a hash has more than `most` fields. It looks at
-- about 100 fields, and goes on there the next time.
local function forget_callers(key, most)
  if redis.call('HLEN', key) <= most then
    return
  end
  local scan = redis.call('HSCAN', key, redis.call('HGET', key, 'hc') or '0', 'MATCH', 'c:*', 'COUNT', 100)
  for i = 1, #scan[2], 2 do
    if struct.unpack('>I6', scan[2][i + 1], 9) < now - 3600000 then
      redis.call('HDEL', key, scan[2][i])
    end
  end
  redis.call('HSET', key, 'hc', scan[1])
end
