-- `fill`: what another engine kept. Hosts come before their tasks, with the number of URLs that they will have in the
-- end; so the buckets of seen URLs need not grow.

-- Tasks and marks of one host: its name, the marks of its URLs, how many of them are done, the highest id, attempts as in
-- Tk with the ids of their tasks, queued records in order with their priorities, scheduled records with the times of
-- their retries, and dead ones with kind, error and last failure.
local function fill_host_tasks(shard, group)
  local name, marks, done, highest, attempts, queued, scheduled, dead = unpack(group)
  local host = known_host(shard, name)
  local count = bucket_count(host.urls)
  local span, buckets, queues = span_of(count), {}, {}
  for _, mark in ipairs(marks) do
    local number = bucket_of(mark, count, span)
    buckets[number] = buckets[number] or {}
    buckets[number][#buckets[number] + 1] = mark
  end
  for number, members in pairs(buckets) do spread('SADD', seen_key(shard.T, name, number), members) end
  for place = 1, #attempts, 2 do remember_attempt(shard, attempts[place], attempts[place + 1]) end
  for place = 1, #queued, 2 do
    local priority = queued[place + 1]
    queues[priority] = queues[priority] or {}
    queues[priority][#queues[priority] + 1] = queued[place]
  end
  for priority, records in pairs(queues) do
    spread('RPUSH', queue_key(shard.T, priority, name), records)
    note_queued(host, priority, #records)
  end
  for place = 1, #scheduled, 2 do schedule(shard, host, scheduled[place], scheduled[place + 1]) end
  for place = 1, #dead, 4 do
    bury(shard, host, dead[place], dead[place + 1], dead[place + 2], dead[place + 3])
  end
  local totals = totals_of(shard)
  totals.done = totals.done + done
  return #marks, highest
end

-- A host: name, next contact, delay, longer delay, whether it is in back-off, note, URLs, pages, bytes.
local function fill_host(shard, fields)
  local name, next_contact, delay, slow, in_backoff, note, urls, pages, bytes = unpack(fields)
  local host = host_from(name, false)
  host.next_contact, host.delay, host.urls, host.pages, host.bytes = next_contact, delay, urls, pages, bytes
  keep(shard, host)
  if urls > 0 then note_new(shard, name) end
  if note ~= '' then call('HSET', shard.T .. 'o', name, note) end
  if in_backoff then call('ZADD', shard.T .. 'r', 0, name) end
  if slow > 0 then call('HSET', shard.T .. 'p', name, format('%.17g', slow)) end
end

-- Contents of one domain: its name, digests and entries in turn, and what is added to its log.
local function fill_domain(T, domain)
  local name, fields, sketches = unpack(domain)
  if #fields > 0 then spread('HSET', T .. 'e' .. name, fields) end
  if sketches ~= '' then call('APPEND', T .. 'i' .. name, sketches) end
end

-- Counts URLs that were accepted, whose tasks have ids up to `highest`.
local function accept(T, accepted, highest)
  local last, gap = tonumber(call('GET', T) or 0), tonumber(call('GET', T .. '~') or 0)
  accepted = accepted + last - gap
  last = max(last, highest, accepted)
  call('SET', T, format('%d', last))
  call('SET', T .. '~', format('%d', last - accepted))
end

-- A step is done once: a call that is sent again, or an import that is made again, finds it done.
local function fill(keys, arguments)
  local T = keys[1]
  local step, now, counters, hosts, groups, domains = unpack(decode(arguments[1]))
  if tonumber(call('GET', T .. '!') or 0) >= step then return 0 end
  local shard, accepted, highest = open_shard(T), 0, 0
  shard.now, shard.attempts = now, {}
  for _, fields in ipairs(hosts) do fill_host(shard, fields) end
  for _, group in ipairs(groups) do
    local more, last = fill_host_tasks(shard, group)
    accepted, highest = accepted + more, max(highest, last)
  end
  for _, domain in ipairs(domains) do fill_domain(T, domain) end
  for place = 1, #counters, 2 do call('HINCRBY', T .. 'c', counters[place], counters[place + 1]) end
  write_attempts(shard)
  commit(shard)
  if accepted > 0 then accept(T, accepted, highest) end
  call('SET', T .. '!', step)
  return 1
end
