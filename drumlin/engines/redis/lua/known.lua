-- What is known about hosts and about the shard, and the small values that coordinators share.

local function host_fields(T, name)
  local raw = call('HGET', T .. 'h', name)
  if not raw then return false end
  local grant = call('HGET', lease_key(T, name), '')
  local note, in_backoff = call('HGET', T .. 'o', name) or '', call('ZSCORE', T .. 'r', name) and 1 or 0
  if not grant then return {name, raw, note, in_backoff} end
  local live = unpack_grant(grant)
  return {name, raw, note, in_backoff, live.lease_id, live.node, format('%.17g', live.deadline)}
end

local function host_state(keys, arguments)
  return host_fields(keys[1], arguments[1])
end

local function hosts(keys, arguments)
  local standing, now, limit = arguments[1], arguments[2], arguments[3]
  local key, low, high = keys[1] .. 'y', '-inf', now
  if standing == 'waiting' then low, high = '(' .. now, '+inf' end
  if standing == 'leased' then key, low, high = keys[1] .. 'd', '-inf', '+inf' end
  if standing == 'backoff' then key, low, high = keys[1] .. 'r', '-inf', '+inf' end
  local states = {}
  for position, name in ipairs(call('ZRANGEBYSCORE', key, low, high, 'LIMIT', 0, limit)) do
    states[position] = host_fields(keys[1], name)
  end
  return states
end

local function set_delay(keys, arguments)
  local shard = open_shard(keys[1])
  local host = known_host(shard, arguments[1]) or host_from(arguments[1], false)
  keep(shard, host)
  host.delay = tonumber(arguments[2])
  commit(shard)
end

-- Allows contacts of hosts in back-off from now on, unless a node holds them.
local function hurry(keys, arguments)
  local shard, now, hurried = open_shard(keys[1]), tonumber(arguments[1]), 0
  local delay = tonumber(arguments[2])
  local names = call('ZRANGE', keys[1] .. 'r', 0, -1)
  look_up(shard, names)
  for _, name in ipairs(names) do
    local host = known_host(shard, name)
    local soonest = host and now + lost_delay(shard, host, delay)
    if host and not host.leased and host.next_contact > soonest then
      host.next_contact = soonest
      hurried = hurried + 1
    end
  end
  commit(shard)
  return hurried
end

local function first_score(key)
  return call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or 'inf'
end

local function stats(keys, arguments)
  local T, now = keys[1], arguments[1]
  return {
    (call('GET', T) or 0) - (call('GET', T .. '~') or 0), call('GET', T .. 'u') or '',
    call('ZCOUNT', T .. 'y', '-inf', now), call('ZCARD', T .. 'y'), call('ZCARD', T .. 'd'),
    first_score(T .. 'y'), first_score(T .. 't'), first_score(T .. 'd'),
    call('ZCARD', T .. 'r'), call('HGETALL', T .. 'c'),
  }
end

local function count(keys, arguments)
  local call_id, now, counts = unpack(decode(arguments[1]))
  if call('EXISTS', keys[1] .. 'a' .. call_id) == 1 then return end
  remember_call(keys[1], call_id, 1, now)
  for position = 1, #counts, 2 do call('HINCRBY', keys[1] .. 'c', counts[position], counts[position + 1]) end
end

local function claim(keys, arguments)
  local name, holder, now, deadline = arguments[1], arguments[2], tonumber(arguments[3]), tonumber(arguments[4])
  local key = keys[1] .. 'b' .. name
  local raw = call('GET', key)
  if raw and sub(raw, 9) ~= holder and unpack_from('>d', raw) > now then return 0 end
  call('SET', key, pack('>d', deadline) .. holder)
  forget_at(keys[1], 'b' .. name, max(now, deadline) + CLAIM_KEPT_S)
  return 1
end

-- The time that coordinators share: the latest that any of them has written. It is text, so no digit is lost.
local function keep_time(keys, arguments)
  local kept = call('GET', keys[1]) or '0'
  if tonumber(arguments[1]) <= tonumber(kept) then return kept end
  call('SET', keys[1], arguments[1])
  return arguments[1]
end
