#!lua flags=allow-oom
-- control: change a partition's copy of its topic's settings (pause, limits, policy version, closed), its listed flag and its
--          known hint; open it with an epoch; or retire it.
-- KEYS   m j r s l a d g k
-- ARGV   1 now_ms or ""   2 expected now (lib/time) or ""   3 caller   4 nonce   5 numbers   6 blob   7 channel   8 permanent
--        numbers  what (1 set, 2 agenda noted, 3 listed, 4 retire, 5 open, 6 close for all topics), then
--                 1: pause until (-1 leave, 0 resume), max in flight (-1 leave), policy version (-1 leave),
--                    deliveries a second (-1 leave, 0 no limit), closed (-1 leave, 0, 1)   2: time
--                 4: topic too (0/1), only ask (0/1)   5: size of the new epoch, listed (0/1)   6: version, closed (0, 1)
--        blob     4: the epoch that it must have   5: the new epoch, the one that it must have ("" = none)
-- RETURN status now note extra numbers (1 = done) epoch (after 4 that only asks)
-- BOUND  O(log N)
local FIELDS = { 'pu', 'pv', 'rt', 'ep', 'xc', 'on' }
-- include time
-- include head
-- include tools
-- include reply
-- include rate
local N = cmsgpack.unpack(ARGV[5])
if N[1] == 1 then
  open_partition()
  if N[2] >= 0 then
    local before = tonumber(M.pu or 0)
    put(set, 'pu', int(N[2]))
    if before > now and N[2] < before and waited then
      redis.call('SPUBLISH', channel, '') -- the pause ended or became shorter: waiting pulls must check again
    end
  end
  if N[3] >= 0 then
    put(set, 'mif', int(N[3]))
    if waited and limited and (N[3] == 0 or N[3] > tonumber(M.mif)) then
      redis.call('SPUBLISH', channel, '')
    end
  end
  if N[4] >= 0 and N[4] > tonumber(M.pv or 0) then
    put(set, 'pv', int(N[4]))
  end
  if N[5] >= 0 and N[5] ~= (rate or 0) then
    set_rate(N[5])
    if waited and (N[5] == 0 or (rate and N[5] > rate)) then
      redis.call('SPUBLISH', channel, '')
    end
  end
  if N[6] >= 0 and N[4] >= tonumber(M.pv or 0) then
    if N[6] == 0 and M.xc then
      redis.call('HDEL', m, 'xc')
    elseif N[6] == 1 and not M.xc then
      put(set, 'xc', '1')
      if waited then
        redis.call('SPUBLISH', channel, '') -- new jobs go to other partitions: waiting pulls must read the topic again
      end
    end
  end
  if #set > 0 then
    redis.call('HSET', m, unpack(set))
  end
elseif N[1] == 2 and known then
  local agenda = tonumber(M.ag or 0)
  if agenda <= now or N[2] < agenda then
    redis.call('HSET', m, 'ag', int(N[2]))
  end
elseif N[1] == 3 and known then
  redis.call('HSET', m, 'reg', '1')
elseif N[1] == 4 then
  local extra = permanent and 1 or 0
  local needed = N[2] == 0 and (waited or (M.pu and tonumber(M.pu) > now) or limited or rate or M.pv)
  needed = needed or tonumber(M.on or 0) > 0 -- a schedule sends here, or did (lib/fence)
  for _, index in ipairs({ s, l, a, d }) do
    needed = needed or redis.call('ZCARD', index) > extra
  end
  if not topic then -- with `namespace_ids` other topics share the records
    needed = needed or redis.call('HLEN', j) > extra or redis.call('HLEN', r) > extra
  end
  needed = needed or (N[3] == 0 and M.ep and M.ep ~= blob) -- it was opened again in the meantime
  if needed or N[3] == 1 then
    return reply(0, 0, 0, cmsgpack.pack({ needed and 0 or 1 }), M.ep or '')
  end
  if waited then -- the next send must wake the waiters, so only the topic is dropped
    redis.call('HDEL', m, 'pu', 'mif', 'pv', 'rt', 'rk', 'ra', 'reg', 'ep', 'xc')
    return reply(0, 0, 0, cmsgpack.pack({ 1 }), '')
  end
  -- Deleted last and at once, so that no key is used after its deletion.
  if topic then
    redis.call('DEL', m, s, l, a, d, g, k)
  else
    redis.call('DEL', m, j, r, s, l, a, d, g, k)
  end
elseif N[1] == 6 then -- with `namespace_ids`: see lib/closed
  if N[2] >= (tonumber(redis.call('HGET', j, '')) or 0) then
    redis.call('HSET', j, '', N[3] == 1 and int(N[2]) or '')
  end
elseif N[1] == 5 then
  local wanted, before = string.sub(blob, 1, N[2]), string.sub(blob, N[2] + 1)
  if M.ep ~= wanted then
    if (M.ep or '') ~= before then
      return reply(0, 0, 0, cmsgpack.pack({ 0 }), '')
    end
    open_partition()
    put(set, 'ep', wanted)
    if N[3] == 1 then
      put(set, 'reg', '1')
    end
    redis.call('HSET', m, unpack(set))
  end
  if N[3] == 0 then
    redis.call('HDEL', m, 'reg') -- its topic is not listed, or not any more: the next change says so
  end
end
return reply(0, 0, 0, cmsgpack.pack({ 1 }), '')
