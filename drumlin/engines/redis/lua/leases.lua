-- Where tasks are when they are not queued: held by a lease, scheduled, or dead; and which attempts settled them.

-- Keys that are deleted after a while

local function time_text(time)
  return format('%.17g', time)
end

-- Lets `forget` delete the key T .. name at this time.
local function forget_at(T, name, time)
  call('ZADD', T .. 'g', time_text(time), name)
end

-- Remembers the answer to a call, in case the call is sent again.
local function remember_call(T, call_id, given, now)
  call('SET', T .. 'a' .. call_id, given)
  forget_at(T, 'a' .. call_id, now + CALLS_REMEMBERED_S)
end

local function forget(T, now)
  local names = call('ZRANGEBYSCORE', T .. 'g', '-inf', now, 'LIMIT', 0, FORGOTTEN_MAX)
  if #names == 0 then return end
  local gone = {}
  for place, name in ipairs(names) do gone[place] = T .. name end
  call('UNLINK', unpack(gone))
  call('ZREM', T .. 'g', unpack(names))
end

-- Scheduled tasks, dead letters, attempts

local function scheduled_member(record, name)
  return sub(record, 1, 6) .. name
end

local function schedule(shard, host, record, retry_at)
  call('HSET', shard.T .. 'w' .. host.name, sub(record, 1, 6), record)
  call('ZADD', shard.T .. 't', retry_at, scheduled_member(record, host.name))
  local totals = totals_of(shard)
  totals.scheduled = totals.scheduled + 1
end

local function unschedule(shard, name, record)
  call('HDEL', shard.T .. 'w' .. name, sub(record, 1, 6))
  call('ZREM', shard.T .. 't', scheduled_member(record, name))
  local totals = totals_of(shard)
  totals.scheduled = totals.scheduled - 1
end

local function letter_field(name, url)
  return name .. '\0' .. url
end

local function listed_member(kind, name, record)
  return kind .. '\0' .. name .. '\0' .. sub(record, 1, 6) .. url_of(record)
end

local function list_letter(T, kind, name, record)
  call('ZADD', T .. 'v', 0, listed_member(kind, name, record))
  call('ZINCRBY', T .. 'j' .. kind, -1, name)
end

local function unlist_letter(T, kind, name, record)
  call('ZREM', T .. 'v', listed_member(kind, name, record))
  if tonumber(call('ZINCRBY', T .. 'j' .. kind, 1, name)) >= 0 then call('ZREM', T .. 'j' .. kind, name) end
end

local function bury(shard, host, record, kind, error, now)
  local field = letter_field(host.name, url_of(record))
  call('HSET', shard.T .. 'x', field, encode({kind, error, format('%.17g', now), record}))
  list_letter(shard.T, kind, host.name, record)
  local totals = totals_of(shard)
  totals.dead = totals.dead + 1
end

local function attempts_key(id)
  return 'k' .. floor(id / 256)
end

-- Captures are collected and written at the end of the call: tasks that are settled together were mostly found
-- together, so they share a set. Only one task in 16 sets the time at which its set is deleted. Nearly every set has
-- such a task; the few others are kept for ever.
local function remember_attempt(shard, id, mark)
  local key = attempts_key(id)
  local marks = shard.attempts[key]
  if not marks then
    marks = {expires = false}
    shard.attempts[key] = marks
  end
  marks[#marks + 1] = mark
  marks.expires = marks.expires or id % 16 == 0
end

local function write_attempts(shard)
  local forgotten_at = time_text(shard.now + ATTEMPTS_REMEMBERED_S)
  for key, marks in pairs(shard.attempts) do
    spread('SADD', shard.T .. key, marks)
    if marks.expires then call('ZADD', shard.T .. 'g', 'NX', forgotten_at, key) end
  end
  shard.attempts = {}
end

local function is_settled_with(shard, id, mark)
  local key = attempts_key(id)
  if shard.attempts[key] then write_attempts(shard) end
  return call('SISMEMBER', shard.T .. key, mark) == 1
end

-- Leases

local function lease_key(T, name)
  return T .. 'l' .. name
end

local function pack_grant(grant)
  return encode({grant.lease_id, grant.node, format('%.17g', grant.deadline), format('%.17g', grant.delay)})
end

local function unpack_grant(raw)
  local fields = decode(raw)
  return {lease_id = fields[1], node = fields[2], deadline = tonumber(fields[3]), delay = tonumber(fields[4])}
end

-- Gives the lease up to `count` tasks, and writes it.
local function hand_out(shard, host, grant, count)
  local tasks = take_front(shard, host, count)
  local fields = {'', pack_grant(grant)}
  for position = 1, #tasks do
    fields[2 * position + 1] = sub(tasks[position], 1, 6)
    fields[2 * position + 2] = tasks[position]
  end
  spread('HSET', lease_key(shard.T, host.name), fields)
  local totals = totals_of(shard)
  totals.leased = totals.leased + #tasks
  return tasks
end

local function end_lease(shard, host, grant)
  local T, name = shard.T, host.name
  local key, tasks = lease_key(T, name), {}
  local held = call('HGETALL', key)
  for position = 1, #held, 2 do
    if held[position] ~= '' then tasks[#tasks + 1] = held[position + 1] end
  end
  call('DEL', key)
  call('ZREM', T .. 'd', name)
  call('SREM', T .. 'n' .. grant.node, name)
  host.leased = false
  local totals = totals_of(shard)
  totals.leased = totals.leased - #tasks
  put_all_back(shard, host, tasks)
end

-- How long a host must be left alone when it may have been contacted just now.
local function lost_delay(shard, host, default)
  return max(default, host.delay, tonumber(call('HGET', shard.T .. 'p', host.name) or 0))
end

-- Ends a lease that its node did not give back: the node may have contacted the host until `ended`.
local function lose_lease(shard, host, grant, ended)
  host.next_contact = max(host.next_contact, ended) + lost_delay(shard, host, grant.delay)
  end_lease(shard, host, grant)
end

local function live_grant(shard, name)
  local raw = call('HGET', lease_key(shard.T, name), '')
  return raw and unpack_grant(raw)
end

local function pace_of(host)
  return pack('>dd', host.next_contact, host.delay)
end
