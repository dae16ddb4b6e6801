-- Changes of tasks without a lease: `expire`, `release_nodes`, and calls about single URLs.

-- Leases that are lost, and tasks that are due again

local function expire(keys, arguments)
  local now, limit = tonumber(arguments[1]), tonumber(arguments[2])
  local T = keys[1]
  forget(T, now)
  local over = call('ZRANGEBYSCORE', T .. 'd', '-inf', now, 'LIMIT', 0, limit)
  local due = call('ZRANGEBYSCORE', T .. 't', '-inf', now, 'LIMIT', 0, limit)
  if #over == 0 and #due == 0 then return over end
  local shard = open_shard(T)
  for _, name in ipairs(over) do
    local grant = live_grant(shard, name)
    lose_lease(shard, known_host(shard, name), grant, max(grant.deadline, now))
  end
  for _, member in ipairs(due) do
    local name = sub(member, 7)
    local host, record = known_host(shard, name), call('HGET', T .. 'w' .. name, sub(member, 1, 6))
    unschedule(shard, name, record)
    wake(host, now)
    put_back(shard, host, record)
  end
  commit(shard)
  return over
end

local function release_nodes(keys, arguments)
  local now, T, shard, ended = tonumber(arguments[1]), keys[1], nil, 0
  for position = 2, #arguments do
    for _, name in ipairs(call('SMEMBERS', T .. 'n' .. arguments[position])) do
      shard = shard or open_shard(T)
      lose_lease(shard, known_host(shard, name), live_grant(shard, name), now)
      ended = ended + 1
    end
  end
  if shard then commit(shard) end
  return ended
end

-- Single URLs

-- The task of a URL in a lease or schedule: its field and its record.
local function held_task(key, url)
  local held = call('HGETALL', key)
  for position = 1, #held, 2 do
    if held[position] ~= '' and url_of(held[position + 1]) == url then
      return held[position], held[position + 1]
    end
  end
end

local function struck(record, now)
  local attempts, crashes, first_failed, mark, attempt_id = history_of(record)
  if first_failed == 0 then first_failed = now end
  return with_history(record, attempts, crashes + 1, first_failed, mark, attempt_id), crashes + 1
end

local function strike_queued(shard, host, url, id, now, limit, kind, error)
  local key, record, place = locate(shard, host, id)
  if not record or url_of(record) ~= url then return -1 end
  local after, crashes = struck(record, now)
  if crashes < limit then
    call('LSET', key, place, after)
    return 0
  end
  take_queued(host, key, record)
  bury(shard, host, after, kind, error, now)
  return 1
end

-- Counts a crash against a task. Returns 1 if the task is dead now, 0 if the crash was noted, and -1 if the task is
-- neither leased nor, if an id is given, queued. If the task dies, a counter with a name becomes one more.
local function strike(keys, arguments)
  local call_id, name, url, now, limit, kind, error, counter, id = unpack(decode(arguments[1]))
  local before = call('GET', keys[1] .. 'a' .. call_id)
  if before then return tonumber(before) end
  local shard = open_shard(keys[1])
  local host = known_host(shard, name)
  if not host then return -1 end
  local key, answer = lease_key(shard.T, name), -1
  local field, record = held_task(key, url)
  if field then
    local after, crashes = struck(record, now)
    answer = crashes < limit and 0 or 1
    if answer == 0 then
      call('HSET', key, field, after)
    else
      call('HDEL', key, field)
      local totals = totals_of(shard)
      totals.leased = totals.leased - 1
      bury(shard, host, after, kind, error, now)
    end
  elseif id then
    answer = strike_queued(shard, host, url, id, now, limit, kind, error)
  end
  if answer == 1 and counter ~= '' then call('HINCRBY', shard.T .. 'c', counter, 1) end
  if answer >= 0 then remember_call(shard.T, call_id, answer, now) end
  commit(shard)
  return answer
end

-- Changes are host, URL, task id and the new priority.
local function reprioritise(keys, arguments)
  local shard, changed = open_shard(keys[1]), 0
  for _, change in ipairs(decode(arguments[1])) do
    local name, url, id, wanted = unpack(change)
    local host = known_host(shard, name)
    local key, record
    if host then key, record = locate(shard, host, id) end
    if record and url_of(record) == url and priority_of(record) ~= wanted then
      take_queued(host, key, record)
      put_back(shard, host, with_priority(record, wanted))
      changed = changed + 1
    end
  end
  commit(shard)
  return changed
end

-- Which of a host's URLs are queued, a slice at a time: the priority (-1: no more) and place of the next slice, then
-- the records found. With a stem, also records whose URL begins with it and so may be another spelling: all spellings
-- of a URL are equal up to the first escape, query or parameter.
local function find(keys, arguments)
  local name, priority, place, urls, stem = unpack(decode(arguments[1]))
  local raw = call('HGET', keys[1] .. 'h', name)
  local host, wanted = host_from(name, raw), {}
  for _, url in ipairs(urls) do wanted[url] = true end
  while priority >= 0 and band(host.flags, 2 ^ priority) == 0 do
    priority, place = priority - 1, 0
  end
  if priority < 0 then return {-1, 0} end
  local records = call('LRANGE', queue_key(keys[1], priority, name), place, place + FIND_SLICE - 1)
  local found = {priority, place + #records}
  if #records < FIND_SLICE then found = {priority - 1, 0} end
  for _, record in ipairs(records) do
    local url = url_of(record)
    local common = stem and url:match('^[^%%?;]*')
    if wanted[url] or stem and sub(stem, 1, #common) == common then found[#found + 1] = record end
  end
  return found
end

-- Forgets URLs that are done, given as pairs of host and mark. The caller has looked that they are: nothing else can
-- happen to a URL that is done. The host's number of URLs stays, because the number of its buckets goes by it.
local function forget_done(keys, arguments)
  local T, forgotten = keys[1], 0
  for _, pair in ipairs(decode(arguments[1])) do
    local name, mark = unpack(pair)
    local raw = call('HGET', T .. 'h', name)
    if raw then
      local count = bucket_count(host_from(name, raw).urls)
      forgotten = forgotten + call('SREM', seen_key(T, name, bucket_of(mark, count, span_of(count))), mark)
    end
  end
  return forgotten
end

-- What is known about a URL, except whether it is queued: state, record, and the time of its retry.
local function story(keys, arguments)
  local name, url, mark = unpack(arguments)
  local T = keys[1]
  local raw = call('HGET', T .. 'h', name)
  if not raw then return {'unknown'} end
  local host = host_from(name, raw)
  local count = bucket_count(host.urls)
  local bucket = bucket_of(mark, count, span_of(count))
  if call('SISMEMBER', seen_key(T, name, bucket), mark) == 0 then return {'unknown'} end
  local _, record = held_task(lease_key(T, name), url)
  if record then return {'leased', record} end
  _, record = held_task(T .. 'w' .. name, url)
  if record then return {'scheduled', record, call('ZSCORE', T .. 't', scheduled_member(record, name))} end
  local letter = call('HGET', T .. 'x', letter_field(name, url))
  if letter then return {'dead', {name, unpack(decode(letter))}} end
  return {'queued or done'}
end
