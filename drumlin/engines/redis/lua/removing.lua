-- Removal on request: a host with all its URLs, or some URLs of it; contents; and where tasks were found. Nobody else uses
-- the frontier meanwhile, so several calls may be made for one removal.

-- Counts URLs as never accepted.
local function unaccept(T, urls)
  if urls > 0 then call('INCRBY', T .. '~', urls) end
end

local function free_lease(shard, host, now)
  if host.leased then lose_lease(shard, host, live_grant(shard, host.name), now) end
end

local function remove_letters(shard, name, kinds)
  local T, removed = shard.T, 0
  for _, kind in ipairs(kinds) do
    local begin = kind .. '\0' .. name .. '\0'
    local members = call('ZRANGEBYLEX', T .. 'v', '[' .. begin, '(' .. kind .. '\0' .. name .. '\1')
    local fields = {}
    for place, member in ipairs(members) do fields[place] = letter_field(name, sub(member, #begin + 7)) end
    if #members > 0 then
      spread('HDEL', T .. 'x', fields)
      spread('ZREM', T .. 'v', members)
      call('ZREM', T .. 'j' .. kind, name)
    end
    removed = removed + #members
  end
  local totals = totals_of(shard)
  totals.dead = totals.dead - removed
end

local function remove_scheduled(shard, name)
  local ids = call('HKEYS', shard.T .. 'w' .. name)
  local members = {}
  for place, id in ipairs(ids) do members[place] = id .. name end
  if #members > 0 then spread('ZREM', shard.T .. 't', members) end
  call('UNLINK', shard.T .. 'w' .. name)
  local totals = totals_of(shard)
  totals.scheduled = totals.scheduled - #ids
end

local function count_letters(T, name, kinds)
  local letters = 0
  for _, kind in ipairs(kinds) do letters = letters - tonumber(call('ZSCORE', T .. 'j' .. kind, name) or 0) end
  return letters
end

-- A host with all its URLs. Returns how many were queued or leased, scheduled, dead and done, and 1 if it was known.
local function remove_host(keys, arguments)
  local now, name, kinds, dry_run = unpack(decode(arguments[1]))
  local shard, T = open_shard(keys[1]), keys[1]
  local host = known_host(shard, name)
  if not host then return {0, 0, 0, 0, 0} end
  local held = host.leased and call('HLEN', lease_key(T, name)) - 1 or 0
  local queued, scheduled, dead = host.queued + held, call('HLEN', T .. 'w' .. name), count_letters(T, name, kinds)
  local done = host.urls - queued - scheduled - dead
  local counts = {queued, scheduled, dead, done, 1}
  if dry_run then return counts end
  free_lease(shard, host, now)
  for priority = PRIORITY_MAX, 0, -1 do call('UNLINK', queue_key(T, priority, name)) end
  remove_scheduled(shard, name)
  remove_letters(shard, name, kinds)
  for bucket = 0, bucket_count(host.urls) - 1 do call('UNLINK', seen_key(T, name, bucket)) end
  for _, key in ipairs({'h', 'o', 'p'}) do call('HDEL', T .. key, name) end
  for _, key in ipairs({'r', 'y', 'm'}) do call('ZREM', T .. key, name) end
  local totals = totals_of(shard)
  totals.done = totals.done - done
  unaccept(T, host.urls)
  shard.hosts, shard.names = {}, {}
  commit(shard)
  return counts
end

-- The last bucket of a host's seen URLs goes back to the one that it was split from, when there are fewer URLs again.
local function shrink(T, name, before, after)
  for bucket = bucket_count(before) - 1, bucket_count(after), -1 do
    local size = 1
    while size * 2 <= bucket do size = size * 2 end
    local source = seen_key(T, name, bucket)
    local marks = call('SMEMBERS', source)
    if #marks > 0 then spread('SADD', seen_key(T, name, bucket - size), marks) end
    call('DEL', source)
  end
end

local function queued_record(shard, host, url)
  for priority = PRIORITY_MAX, 0, -1 do
    if band(host.flags, 2 ^ priority) ~= 0 then
      local key, place = queue_key(shard.T, priority, host.name), 0
      repeat
        local records = call('LRANGE', key, place, place + FIND_SLICE - 1)
        for _, record in ipairs(records) do
          if url_of(record) == url then return key, record end
        end
        place = place + FIND_SLICE
      until #records < FIND_SLICE
    end
  end
end

-- Takes one URL from wherever it is; returns the place of its state in the answer of `remove_urls`.
local function take_url(shard, host, url)
  local key, record = queued_record(shard, host, url)
  if record then
    take_queued(host, key, record)
    return 1
  end
  local _, waiting = held_task(shard.T .. 'w' .. host.name, url)
  if waiting then
    unschedule(shard, host.name, waiting)
    return 2
  end
  if #take_dead(shard, {{host.name, url}}, '') > 0 then return 3 end
  local totals = totals_of(shard)
  totals.done = totals.done - 1
  return 4
end

-- Some URLs of a host, each with its mark. The caller has ended the lease of the host.
local function remove_urls(keys, arguments)
  local now, name, urls = unpack(decode(arguments[1]))
  local shard, T, counts = open_shard(keys[1]), keys[1], {0, 0, 0, 0, 0}
  local host = known_host(shard, name)
  if not host then return counts end
  free_lease(shard, host, now)
  for _, pair in ipairs(urls) do
    local url, mark = unpack(pair)
    local count = bucket_count(host.urls)
    if call('SREM', seen_key(T, name, bucket_of(mark, count, span_of(count))), mark) == 1 then
      local state = take_url(shard, host, url)
      counts[state] = counts[state] + 1
      shrink(T, name, host.urls, host.urls - 1)
      host.urls = host.urls - 1
      unaccept(T, 1)
    end
  end
  if host.urls == 0 then call('ZREM', T .. 'm', name) end
  commit(shard)
  return counts
end

-- Tasks that were found elsewhere than they say: host, state, and the new record, which has the same id and URL.
local function rewrite(keys, arguments)
  local shard, T = open_shard(keys[1]), keys[1]
  for _, change in ipairs(decode(arguments[1])) do
    local name, state, record = unpack(change)
    local id, host = sub(record, 1, 6), known_host(shard, name)
    if state == 'scheduled' then
      call('HSET', T .. 'w' .. name, id, record)
    elseif state == 'dead' then
      local field = letter_field(name, url_of(record))
      local letter = decode(call('HGET', T .. 'x', field))
      call('HSET', T .. 'x', field, encode({letter[1], letter[2], letter[3], record}))
    elseif call('HEXISTS', lease_key(T, name), id) == 1 then
      call('HSET', lease_key(T, name), id, record)
    else
      local key, _, place = locate(shard, host, id_of(record))
      call('LSET', key, place, record)
    end
  end
  return 1
end

-- Contents of a domain: which digests are forgotten, entries that change, and what the log of sketches becomes.
local function remove_contents(keys, arguments)
  local T = keys[1]
  local name, digests, fields, log = unpack(decode(arguments[1]))
  if #digests > 0 then spread('HDEL', T .. 'e' .. name, digests) end
  if #fields > 0 then spread('HSET', T .. 'e' .. name, fields) end
  if log == '' then call('DEL', T .. 'i' .. name) else call('SET', T .. 'i' .. name, log) end
  -- Nobody can tell whose the SimHashes of earlier versions are, and nobody reads them.
  call('DEL', T .. 'f' .. name)
  return 1
end

-- Answers to calls name hosts and URLs. They are kept in case a call is sent again; nobody does so now.
local function forget_calls(keys)
  local T = keys[1]
  local names = {}
  for _, name in ipairs(call('ZRANGE', T .. 'g', 0, -1)) do
    if sub(name, 1, 1) == 'a' then
      names[#names + 1] = name
      call('UNLINK', T .. name)
    end
  end
  if #names > 0 then spread('ZREM', T .. 'g', names) end
  return #names
end
