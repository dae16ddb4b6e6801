#!lua name=drumlin_@VERSION@
--[[
The frontier on Redis or Valkey: every call of `drumlin.engines.base` is one function here, and so atomic.

All keys of a shard begin with the same hash tag T = {namespace:shard}, and so live in one slot of a cluster:

  T          number  the last task id given, which is how many URLs were accepted
  Tu         string  how many tasks are scheduled, leased, done and dead; the rest of those accepted are queued
  T-         never exists. Every call names T and T- as its keys: while the slot is being moved to another server,
             either server then answers TRYAGAIN before anything has run, so that no call ever sees half a shard
  Th         hash    host → next contact, delay, URLs accepted, queued, pages, bytes, flags (bit p: something may be
                     queued with priority p; bit 10: leased)
  To         hash    host → note
  Tr         zset    hosts in back-off, in the order of their names
  Ty         zset    hosts that are not leased and have something queued, by next contact
  Tq<p><host>  list  what is queued with priority p, in order of task ids: records, see below
  Ts<b>:<host> set   the host's accepted URLs: 52 bits of each one's hash, in buckets that stay small enough to be kept as
                     sorted arrays of integers (8 bytes each); see `bucket_of`
  Td         zset    leased hosts, by deadline
  Tl<host>   hash    a lease: "" → token, node, deadline, default delay; task id → record
  Tn<node>   set     the hosts that the node has leased
  Tt         zset    scheduled tasks (task id and host), by the time of their retry
  Tw<host>   hash    the host's scheduled tasks: task id → record
  Tx         hash    dead letters: host, zero, URL → kind, error, last failure, record
  Tz         zset    the same, by task id
  Tk<n>      set     of tasks 256 n to 256 n + 255, which capture each was settled with last: 8 bits of the task's id and
                     23 bits of hash, so that a settlement sent again is recognised; forgotten after a while
  Tc         hash    counters
  Ta<call>   string  what a call gave that must not be given twice when the call is sent again; forgotten after minutes
  Tb<name>   string  a claim: until when, and who holds it
  Tg         zset    what is to be forgotten of Tk, Ta and Tb (k<n>, a<call>, b<name>), by when
  T+         string  means nothing: written so that replicas can confirm all that was written before
  T%         number  how often coordinators have looked whether this server can be written; it never falls, unless data
                     was lost
  Te<domain> hash    contents of a registrable domain: 12 bytes of the digest → nearest, URL, time, record id, overlap
  Tf<domain> string  SimHashes, which earlier versions kept; not read
  Ti<domain> string  the sketches of their texts in order of arrival: 88 bytes, and the 12 bytes of the digest

A record is a task: id (6 bytes), twice its priority (plus 1 if it has a history; the history), the URL's length (2
bytes), the URL, the rest. The history is attempts, crashes, first failure, and the last capture as in Tk and in full;
most tasks never have one. URL and rest are as `drumlin.engines.redis_records` writes them; of these only the URL is
looked at here, to compare it.

The caller passes the time. Redis's own clock decides nothing: no key has an expiry of Redis's, and `expire` forgets.
]]

-- What Lua and Redis offer exists only while a function runs, so that it is named here and set by the first that does.
local call, pack, unpack_from, encode, decode, band, bor, sub, byte, char, format, floor, ceil, max, min

local function set_names()
  call, pack, unpack_from, encode, decode = redis.call, struct.pack, struct.unpack, cmsgpack.pack, cmsgpack.unpack
  band, bor, sub, byte, char, format = bit.band, bit.bor, string.sub, string.byte, string.char, string.format
  floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
end

-- Members of a bucket of seen URLs on average. The fullest hold about 2.5 times as many, and Redis keeps sets of integers
-- as sorted arrays up to 512 (set-max-intset-entries).
local BUCKET_LOAD = 192
local CAPTURES_REMEMBERED_S = 14 * 24 * 3600
local CALLS_REMEMBERED_S = 120
local CLAIM_KEPT_S = 60
local FORGOTTEN_MAX = 1000
local ARGUMENTS_MAX = 4000
local FIND_SLICE = 1000
local LETTERS_SLICE = 500

local LEASED = 1024
local PRIORITY_MAX = 9
local TOTALS = '>I6I6I6I6'
local HOST = '>ddI5I5I5I8I2'
local HOST_URLS = 17  -- where the URLs accepted stand in it
local HISTORY = '>I2I2dI4I2c0'

-- Lists of arguments of any length

local function spread(command, key, arguments)
  for first = 1, #arguments, ARGUMENTS_MAX do
    call(command, key, unpack(arguments, first, min(first + ARGUMENTS_MAX - 1, #arguments)))
  end
end

-- The values of the fields that a list names, from one index to another.
local function read_fields(key, fields, first, last)
  if last - first < ARGUMENTS_MAX then return call('HMGET', key, unpack(fields, first, last)) end
  local values = {}
  for index = first, last do values[index - first + 1] = call('HGET', key, fields[index]) end
  return values
end

-- Shards and hosts: read at need, changed in memory, written once at the end by `commit`

local function open_shard(T)
  return {T = T, hosts = {}, names = {}, totals = nil, sums = nil, captures = nil, now = nil}
end

local function totals_of(shard)
  local totals = shard.totals
  if not totals then
    local raw = call('GET', shard.T .. 'u')
    totals = {raw = raw, scheduled = 0, leased = 0, done = 0, dead = 0}
    if raw then totals.scheduled, totals.leased, totals.done, totals.dead = unpack_from(TOTALS, raw) end
    shard.totals = totals
  end
  return totals
end

local function host_from(name, raw)
  local next_contact, delay, urls, queued, pages, bytes, flags = 0, -1, 0, 0, 0, 0, 0
  if raw then next_contact, delay, urls, queued, pages, bytes, flags = unpack_from(HOST, raw) end
  local leased = flags >= LEASED
  return {
    name = name, raw = raw, next_contact = next_contact, delay = delay, urls = urls, queued = queued, pages = pages,
    bytes = bytes, flags = leased and flags - LEASED or flags, leased = leased,
    ready_at = queued > 0 and not leased and next_contact,
  }
end

-- Reads hosts together: one call in place of many.
local function look_up(shard, names)
  for first = 1, #names, ARGUMENTS_MAX do
    local last = min(first + ARGUMENTS_MAX - 1, #names)
    local found = call('HMGET', shard.T .. 'h', unpack(names, first, last))
    for place = first, last do
      local name, raw = names[place], found[place - first + 1]
      if shard.hosts[name] == nil then shard.hosts[name] = raw and host_from(name, raw) end
    end
  end
end

-- Has a host written at the end, if it has changed by then.
local function keep(shard, host)
  if not host.kept then
    host.kept = true
    shard.hosts[host.name] = host
    shard.names[#shard.names + 1] = host.name
  end
end

local function known_host(shard, name)
  local host = shard.hosts[name]
  if host == nil then
    local raw = call('HGET', shard.T .. 'h', name)
    host = raw and host_from(name, raw)
    shard.hosts[name] = host
  end
  if host then keep(shard, host) end
  return host
end

local function commit_hosts(shard)
  local T, fields, ready, unready = shard.T, {}, nil, nil
  for _, name in ipairs(shard.names) do
    local host = shard.hosts[name]
    local flags = host.leased and host.flags + LEASED or host.flags
    local raw = pack(HOST, host.next_contact, host.delay, host.urls, host.queued, host.pages, host.bytes, flags)
    if raw ~= host.raw then
      fields[#fields + 1] = name
      fields[#fields + 1] = raw
      local ready_at = host.queued > 0 and not host.leased and host.next_contact
      if ready_at and ready_at ~= host.ready_at then
        ready = ready or {}
        ready[#ready + 1] = ready_at
        ready[#ready + 1] = name
      elseif host.ready_at and not ready_at then
        unready = unready or {}
        unready[#unready + 1] = name
      end
    end
  end
  if #fields > 0 then spread('HSET', T .. 'h', fields) end
  if unready then spread('ZREM', T .. 'y', unready) end
  if ready then spread('ZADD', T .. 'y', ready) end
end

local function commit(shard)
  commit_hosts(shard)
  local totals = shard.totals
  if totals then
    local raw = pack(TOTALS, totals.scheduled, totals.leased, totals.done, totals.dead)
    if raw ~= totals.raw then call('SET', shard.T .. 'u', raw) end
  end
end

-- Records

local function id_of(record)
  return (unpack_from('>I6', record))
end

local function priority_of(record)
  return floor(byte(record, 7) / 2)
end

local function history_of(record)
  if byte(record, 7) % 2 == 0 then return 0, 0, 0, 0, '', 8 end
  return unpack_from(HISTORY, record, 8)
end

local function url_of(record)
  if byte(record, 7) % 2 == 0 then return (unpack_from('>I2c0', record, 8)) end
  local _, _, _, _, _, position = history_of(record)
  return (unpack_from('>I2c0', record, position))
end

local function with_history(record, attempts, crashes, first_failed, mark, capture)
  local _, _, _, _, _, position = history_of(record)
  local flag, history = 2 * priority_of(record), ''
  if attempts > 0 or crashes > 0 or first_failed > 0 or capture ~= '' then
    flag, history = flag + 1, pack(HISTORY, attempts, crashes, first_failed, mark, #capture, capture)
  end
  return sub(record, 1, 6) .. char(flag) .. history .. sub(record, position)
end

local function with_priority(record, priority)
  return sub(record, 1, 6) .. char(2 * priority + byte(record, 7) % 2) .. sub(record, 8)
end

-- Seen URLs. A host's buckets grow by linear hashing: their number follows from the number of its URLs, and each further
-- bucket takes its part from one other.

local function bucket_count(urls)
  return max(1, ceil(urls / BUCKET_LOAD))
end

local function seen_key(T, name, bucket)
  -- Writing numbers is dear, and most hosts have one bucket.
  if bucket == 0 then return T .. 's0:' .. name end
  return T .. 's' .. bucket .. ':' .. name
end

-- The least power of two that is no less than the number of buckets.
local function span_of(count)
  local span = 1
  while span < count do span = span * 2 end
  return span
end

local function bucket_of(mark, count, span)
  if count == 1 then return 0 end
  local number = tonumber(mark)
  local bucket = number % span
  return bucket < count and bucket or number % (span / 2)
end

local function split(T, name, bucket)
  local size = 1
  while size * 2 <= bucket do size = size * 2 end
  local source, target = seen_key(T, name, bucket - size), seen_key(T, name, bucket)
  local kept, moved = {}, {}
  for _, mark in ipairs(call('SMEMBERS', source)) do
    local part = tonumber(mark) % (size * 2) == bucket and moved or kept
    part[#part + 1] = mark
  end
  if #moved == 0 then return end
  call('DEL', source)
  spread('SADD', target, moved)
  if #kept > 0 then spread('SADD', source, kept) end
end

local function grow(T, name, before, after)
  for count = bucket_count(before) + 1, bucket_count(after) do split(T, name, count - 1) end
end

-- Queues

local function queue_key(T, priority, name)
  return T .. 'q' .. priority .. name
end

local function note_queued(host, priority, count)
  host.flags = bor(host.flags, 2 ^ priority)
  host.queued = host.queued + count
end

-- A host that had nothing to do becomes ready now, or at its next contact if that is later.
local function wake(host, now)
  if host.queued == 0 and not host.leased then host.next_contact = max(host.next_contact, now) end
end

-- The first place in a queue whose task has this id or a higher one. Queues are in order of ids.
local function place_of(key, id)
  local low, high = 0, call('LLEN', key)
  while low < high do
    local middle = floor((low + high) / 2)
    if id_of(call('LINDEX', key, middle)) < id then low = middle + 1 else high = middle end
  end
  return low
end

local function insert(key, record)
  local id = id_of(record)
  local head = call('LINDEX', key, 0)
  if not head or id < id_of(head) then
    call('LPUSH', key, record)
    return
  end
  local pivot = call('LINDEX', key, place_of(key, id))
  if pivot then call('LINSERT', key, 'BEFORE', pivot, record) else call('RPUSH', key, record) end
end

local function put_back(shard, host, record)
  local priority = priority_of(record)
  insert(queue_key(shard.T, priority, host.name), record)
  note_queued(host, priority, 1)
end

-- Returns tasks to their places: nearly always the front of the queue.
local function put_all_back(shard, host, records)
  local queues = {}
  for _, record in ipairs(records) do
    local priority = priority_of(record)
    local queue = queues[priority] or {}
    queues[priority] = queue
    queue[#queue + 1] = {id_of(record), record}
  end
  for priority, queue in pairs(queues) do
    table.sort(queue, function(one, other) return one[1] > other[1] end)
    local key, sorted = queue_key(shard.T, priority, host.name), {}
    for position, entry in ipairs(queue) do sorted[position] = entry[2] end
    local head = call('LINDEX', key, 0)
    if not head or queue[1][1] < id_of(head) then
      spread('LPUSH', key, sorted)
    else
      for _, record in ipairs(sorted) do insert(key, record) end
    end
    note_queued(host, priority, #queue)
  end
end

-- Takes up to `count` tasks from the front, highest priority first.
local function take_front(shard, host, count)
  local taken = {}
  for priority = PRIORITY_MAX, 0, -1 do
    local wanted = count - #taken
    if wanted <= 0 or host.queued == #taken then break end
    if band(host.flags, 2 ^ priority) ~= 0 then
      local records = call('LPOP', queue_key(shard.T, priority, host.name), wanted) or {}
      if #records < wanted then host.flags = host.flags - 2 ^ priority end
      if #taken == 0 then
        taken = records
      else
        for _, record in ipairs(records) do taken[#taken + 1] = record end
      end
    end
  end
  host.queued = host.queued - #taken
  if host.queued == 0 then host.flags = 0 end
  return taken
end

-- Where a queued task stands: its queue's key, its record and its place there.
local function locate(shard, host, id)
  for priority = PRIORITY_MAX, 0, -1 do
    if band(host.flags, 2 ^ priority) ~= 0 then
      local key = queue_key(shard.T, priority, host.name)
      local place = place_of(key, id)
      local record = call('LINDEX', key, place)
      if record and id_of(record) == id then return key, record, place end
    end
  end
end

local function take_queued(host, key, record)
  call('LREM', key, 1, record)
  host.queued = host.queued - 1
  if host.queued == 0 then host.flags = 0 end
end

-- What is forgotten after a while

local function time_text(time)
  return format('%.17g', time)
end

-- Has the key T .. name deleted once the time has come.
local function forget_at(T, name, time)
  call('ZADD', T .. 'g', time_text(time), name)
end

-- Remembers what a call gave, for when it is sent again.
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

-- Scheduled tasks, dead letters, captures

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

local function bury(shard, host, record, kind, error, now)
  local field = letter_field(host.name, url_of(record))
  call('HSET', shard.T .. 'x', field, encode({kind, error, format('%.17g', now), record}))
  call('ZADD', shard.T .. 'z', id_of(record), field)
  local totals = totals_of(shard)
  totals.dead = totals.dead + 1
end

local function capture_key(id)
  return 'k' .. floor(id / 256)
end

-- Kept until the end of the call, since tasks that are settled together were mostly found together.
-- One task in 16 sets the time of forgetting, since nearly every set has one of them and the others can do without.
local function remember_capture(shard, id, mark)
  local key = capture_key(id)
  local marks = shard.captures[key]
  if not marks then
    marks = {expires = false}
    shard.captures[key] = marks
  end
  marks[#marks + 1] = mark
  marks.expires = marks.expires or id % 16 == 0
end

local function write_captures(shard)
  local forgotten_at = time_text(shard.now + CAPTURES_REMEMBERED_S)
  for key, marks in pairs(shard.captures) do
    spread('SADD', shard.T .. key, marks)
    if marks.expires then call('ZADD', shard.T .. 'g', 'NX', forgotten_at, key) end
  end
  shard.captures = {}
end

local function is_captured(shard, id, mark)
  local key = capture_key(id)
  if shard.captures[key] then write_captures(shard) end
  return call('SISMEMBER', shard.T .. key, mark) == 1
end

-- Leases

local function lease_key(T, name)
  return T .. 'l' .. name
end

local function pack_grant(grant)
  return encode({grant.token, grant.node, format('%.17g', grant.deadline), format('%.17g', grant.delay)})
end

local function unpack_grant(raw)
  local fields = decode(raw)
  return {token = fields[1], node = fields[2], deadline = tonumber(fields[3]), delay = tonumber(fields[4])}
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

-- Ends a lease whose node was not heard of: it may have contacted the host until `ended`.
local function lose_lease(shard, host, grant, ended)
  local delay = host.delay < 0 and grant.delay or host.delay
  host.next_contact = max(host.next_contact, ended) + delay
  end_lease(shard, host, grant)
end

local function live_grant(shard, name)
  local raw = call('HGET', lease_key(shard.T, name), '')
  return raw and unpack_grant(raw)
end

local function pace_of(host)
  return pack('>dd', host.next_contact, host.delay)
end

-- Adding

-- URLs come in groups, one for each host, all in one flat list: a table for each would cost more than the work on it. The
-- list is the time, the most URLs that a host may have (or false), how many URLs and groups there are, the groups' hosts,
-- and then of each group: how many URLs and runs it has, the URLs' marks, the URLs, the runs. A run is URLs found in one
-- place: the position of the first in the group and its place in the order of the call, priority, and what records end
-- with.
local RUN = 4
local NONE = {}

-- Where the parts of the group that begins at `start` are in the list: before the first mark, URL and run, and the last.
local function parts_of(list, start)
  local count, marks = list[start], start + 1
  local runs = marks + 2 * count
  return count, marks, marks + count, runs, runs + RUN * list[start + 1]
end

-- The marks among list[first] to list[last] that are new, in order, as indices; they are seen from now on.
local function see_few(key, list, first, last)
  if first == last then return call('SADD', key, list[first]) == 1 and {first} or NONE end
  local fresh, added, count, seen = {}, {}, 0, call('SMISMEMBER', key, unpack(list, first, last))
  for place = 1, #seen do
    if seen[place] == 0 then
      count = count + 1
      fresh[count] = first + place - 1
      added[count] = list[first + place - 1]
    end
  end
  if count == 0 or call('SADD', key, unpack(added)) == count then return fresh end
  -- Some were given twice: only the first of each is new.
  local firsts, listed = {}, {}
  for _, index in ipairs(fresh) do
    if not listed[list[index]] then firsts[#firsts + 1] = index end
    listed[list[index]] = true
  end
  return firsts
end

local function see_in_buckets(T, name, count, list, first, last)
  local span, buckets, new, fresh = span_of(count), {}, {}, {}
  for index = first, last do
    -- As `bucket_of`, of which a call for each mark would cost as much as the rest.
    local number = list[index] % span
    if number >= count then number = number - span / 2 end
    local bucket = buckets[number]
    if not bucket then
      bucket = {marks = {}, indices = {}}
      buckets[number] = bucket
    end
    bucket.marks[#bucket.marks + 1] = list[index]
    bucket.indices[#bucket.indices + 1] = index
  end
  for number, bucket in pairs(buckets) do
    local found = see_few(seen_key(T, name, number), bucket.marks, 1, #bucket.marks)
    for place = 1, #found do new[bucket.indices[found[place]]] = true end
  end
  for index = first, last do
    if new[index] then fresh[#fresh + 1] = index end
  end
  return fresh
end

-- As above, one by one, while there is room; also those that found none.
local function see_within(T, name, count, list, first, last, room)
  local span, fresh, refused = span_of(count), {}, {}
  for index = first, last do
    local key = seen_key(T, name, bucket_of(list[index], count, span))
    if #fresh < room then
      if call('SADD', key, list[index]) == 1 then fresh[#fresh + 1] = index end
    elseif call('SISMEMBER', key, list[index]) == 0 then
      refused[#refused + 1] = index
    end
  end
  return fresh, refused
end

-- The indices of the marks in a group that are new, and of those that would be but for the cap.
local function see_group(T, name, urls, list, first, last, cap)
  local count = bucket_count(urls)
  local refused, fresh = NONE, nil
  if last - first >= ARGUMENTS_MAX or cap and urls + last - first + 1 > cap then
    fresh, refused = see_within(T, name, count, list, first, last, (cap or math.huge) - urls)
  elseif count == 1 then
    fresh = see_few(seen_key(T, name, 0), list, first, last)
  elseif first == last then
    fresh = see_few(seen_key(T, name, bucket_of(list[first], count, span_of(count))), list, first, last)
  else
    fresh = see_in_buckets(T, name, count, list, first, last)
  end
  if #fresh > 0 then grow(T, name, urls, urls + #fresh) end
  return fresh, refused
end

-- Notes the answer for those of a group that are given as indices of their marks. `runs` and `last` bound its runs.
local function answer(answers, list, marks, runs, last, indices, code)
  local run = runs + 1
  for position = 1, #indices do
    local index = indices[position] - marks
    while run + RUN <= last and list[run + RUN] <= index do run = run + RUN end
    answers[list[run + 1] + index - list[run]] = code
  end
end

-- The ids of new URLs by their places in the call: tasks are numbered in the order of arrival, whatever their hosts.
local function number_by_place(answers, id)
  local ids = {}
  for place = 1, #answers do
    if answers[place] == '0' then id = id + 1 end
    ids[place] = id
  end
  return ids
end

local function push_group(shard, list, ids, now, name, raw, start, fresh)
  local _, marks, urls, runs, last = parts_of(list, start)
  local host, queues, run = host_from(name, raw), {}, runs + 1
  for position = 1, #fresh do
    local index = fresh[position] - marks
    while run + RUN <= last and list[run + RUN] <= index do run = run + RUN end
    local priority, url, id = list[run + 2], list[urls + index], ids[list[run + 1] + index - list[run]]
    local queue = queues[priority]
    if not queue then
      queue = {}
      queues[priority] = queue
    end
    queue[#queue + 1] = pack('>I6BI2', id, 2 * priority, #url) .. url .. list[run + 3]
  end
  keep(shard, host)
  host.urls = host.urls + #fresh
  wake(host, now)
  for priority, records in pairs(queues) do
    spread('RPUSH', queue_key(shard.T, priority, name), records)
    note_queued(host, priority, #records)
  end
end

local function add(keys, arguments)
  local list = decode(arguments[1])
  local now, cap, total, groups = unpack(list, 1, 4)
  local T, answers, news, accepted, start = keys[1], {}, {}, 0, 5 + groups
  for place = 1, total do answers[place] = '1' end
  local hosts = read_fields(T .. 'h', list, 5, 4 + groups)
  for group = 1, groups do
    local name, raw = list[4 + group], hosts[group]
    local count, marks, _, runs, last = parts_of(list, start)
    local urls = raw and unpack_from('>I5', raw, HOST_URLS) or 0
    local fresh, refused = see_group(T, name, urls, list, marks + 1, marks + count, cap)
    if #fresh > 0 then
      answer(answers, list, marks, runs, last, fresh, '0')
      accepted = accepted + #fresh
      news[#news + 1] = {name, raw, start, fresh}
    end
    answer(answers, list, marks, runs, last, refused, '2')
    start = last + 1
  end
  if accepted > 0 then
    local shard, ids = open_shard(T), number_by_place(answers, call('INCRBY', T, accepted) - accepted)
    for _, new in ipairs(news) do push_group(shard, list, ids, now, unpack(new)) end
    commit(shard)
  end
  return table.concat(answers)
end

-- Leasing

local function given_before(shard, names, request)
  local leases = {}
  for place, name in ipairs(names) do
    local grant = live_grant(shard, name)
    if grant and grant.token == request .. '.' .. (place - 1) then
      local host, tasks = known_host(shard, name), {}
      local held = call('HGETALL', lease_key(shard.T, name))
      for position = 1, #held, 2 do
        if held[position] ~= '' then tasks[#tasks + 1] = held[position + 1] end
      end
      local note = call('HGET', shard.T .. 'o', name) or ''
      leases[#leases + 1] = {name, grant.token, pace_of(host), note, tasks, format('%.17g', grant.deadline)}
    end
  end
  return leases
end

-- Those of the named hosts that are due, the longest due first. The names come in the order of their bytes.
local function due_among(T, horizon, names)
  local due, scores = {}, call('ZMSCORE', T .. 'y', unpack(names))
  for place, name in ipairs(names) do
    local score = tonumber(scores[place] or nil)
    if score and score <= horizon then due[#due + 1] = {score, place, name} end
  end
  table.sort(due, function(one, other)
    if one[1] ~= other[1] then return one[1] < other[1] end
    return one[2] < other[2]
  end)
  for place, entry in ipairs(due) do due[place] = entry[3] end
  return due
end

local function due_hosts(T, horizon, hosts_max, skipped, only)
  if hosts_max <= 0 then return {} end
  hosts_max = min(hosts_max, ARGUMENTS_MAX)
  local skip, due, candidates = {}, {}, nil
  for _, name in ipairs(skipped) do skip[name] = true end
  if #only > 0 then
    candidates = due_among(T, horizon, only)
  else
    candidates = call('ZRANGEBYSCORE', T .. 'y', '-inf', horizon, 'LIMIT', 0, hosts_max + #skipped)
  end
  for _, name in ipairs(candidates) do
    if not skip[name] and #due < hosts_max then due[#due + 1] = name end
  end
  return due
end

local function lease(keys, arguments)
  local node, request, now, deadline, hosts_max, urls_max, urls_per_host, horizon_s, delay, skipped, only =
    unpack(decode(arguments[1]))
  local T = keys[1]
  local names = call('GET', T .. 'a' .. request)
  if names then return given_before(open_shard(T), decode(names), request) end
  if min(urls_per_host, urls_max) <= 0 then return {} end
  local due = due_hosts(T, now + horizon_s, hosts_max, skipped, only)
  if #due == 0 then return {} end
  local shard, leases, given, deadlines = open_shard(T), {}, {}, {}
  local notes = call('HMGET', T .. 'o', unpack(due))
  look_up(shard, due)
  local written = format('%.17g', deadline)
  for place, name in ipairs(due) do
    local size = min(urls_per_host, urls_max)
    if size <= 0 then break end
    local host = known_host(shard, name)
    local grant = {token = request .. '.' .. (place - 1), node = node, deadline = deadline, delay = delay}
    local tasks = hand_out(shard, host, grant, size)
    host.leased = true
    urls_max = urls_max - #tasks
    given[place] = name
    deadlines[#deadlines + 1] = written
    deadlines[#deadlines + 1] = name
    leases[place] = {name, grant.token, pace_of(host), notes[place] or '', tasks, written}
  end
  spread('ZADD', T .. 'd', deadlines)
  spread('SADD', T .. 'n' .. node, given)
  remember_call(T, request, encode(given), now)
  commit(shard)
  return leases
end

-- A lease without tasks, of any host that nobody holds and whose next contact has come.
local function visit(keys, arguments)
  local name, node, token, deadline, due_by, delay = unpack(decode(arguments[1]))
  local T = keys[1]
  local shard = open_shard(T)
  local host = known_host(shard, name) or host_from(name, false)
  local before = host.leased and live_grant(shard, name)
  -- With this very token it is the same call, sent again.
  if not (before and before.token == token) then
    if before or host.next_contact > due_by then return false end
    keep(shard, host)
    hand_out(shard, host, {token = token, node = node, deadline = deadline, delay = delay}, 0)
    host.leased = true
    call('ZADD', T .. 'd', deadline, name)
    call('SADD', T .. 'n' .. node, name)
    commit(shard)
  end
  return {name, token, pace_of(host), call('HGET', T .. 'o', name) or '', {}, format('%.17g', deadline)}
end

local function extended(shard, name, grant, tasks)
  local note = call('HGET', shard.T .. 'o', name) or ''
  local pace, deadline = pace_of(known_host(shard, name)), format('%.17g', grant.deadline)
  return {name, grant.token, pace, note, tasks, deadline, grant.node}
end

-- The tasks that this very call gave when it was made the first time, as far as the lease still holds them.
local function extended_before(shard, renewals, before)
  local leases = {}
  for place, renewal in ipairs(renewals) do
    local name, token, ids, tasks = renewal[1], renewal[2], before[place], {}
    local grant = live_grant(shard, name)
    leases[place] = false
    if ids and grant and grant.token == token then
      for _, id in ipairs(ids) do
        tasks[#tasks + 1] = call('HGET', lease_key(shard.T, name), id) or nil
      end
      leases[place] = extended(shard, name, grant, tasks)
    end
  end
  return leases
end

local function extend(keys, arguments)
  local call_id, now, deadline, renewals = unpack(decode(arguments[1]))
  local T = keys[1]
  local shard, leases, given, some = open_shard(T), {}, {}, false
  local before = call('GET', T .. 'a' .. call_id)
  if before then return extended_before(shard, renewals, decode(before)) end
  for place, renewal in ipairs(renewals) do
    local name, token, urls_max = unpack(renewal)
    local grant = live_grant(shard, name)
    leases[place], given[place] = false, false
    if grant and grant.token == token and grant.deadline > now then
      grant.deadline = deadline
      local tasks, ids = hand_out(shard, known_host(shard, name), grant, urls_max), {}
      call('ZADD', T .. 'd', deadline, name)
      for position, task in ipairs(tasks) do ids[position] = sub(task, 1, 6) end
      leases[place], given[place] = extended(shard, name, grant, tasks), ids
      some = some or #tasks > 0
    end
  end
  if some then remember_call(T, call_id, encode(given), now) end
  commit(shard)
  return leases
end

-- Settling

local DONE, SCHEDULED, PUT_OFF = 0, 1, 3

-- What a settlement says of one task: id, URL, capture, its mark, state, size, counts, retry time, kind, error.
local function finish(shard, host, part)
  local id, _, capture, mark, _, size, counts = unpack(part, 1, 7)
  if capture ~= '' then remember_capture(shard, id, mark) end
  host.bytes = host.bytes + size
  local sums = shard.sums
  for position = 1, #counts, 2 do
    local name = counts[position]
    sums[name] = (sums[name] or 0) + counts[position + 1]
  end
end

local function apply(shard, host, part, record, now)
  local id, _, capture, mark, state, size = unpack(part, 1, 6)
  local attempts, crashes, first_failed, old_mark, old_capture = history_of(record)
  if old_capture ~= '' then call('SREM', shard.T .. capture_key(id), old_mark) end
  finish(shard, host, part)
  if state == DONE then
    local totals = totals_of(shard)
    totals.done = totals.done + 1
    if size > 0 then host.pages = host.pages + 1 end
    return
  end
  if state ~= PUT_OFF then
    attempts = attempts + 1
    if first_failed == 0 then first_failed = now end
  end
  record = with_history(record, attempts, crashes, first_failed, mark, capture)
  if state == SCHEDULED or state == PUT_OFF then
    schedule(shard, host, record, part[8])
  else
    bury(shard, host, record, part[9], part[10], now)
  end
end

-- A task that its lease does not hold, or no more: settled before, waiting for another lease, or in another's hands.
-- The verdict, and where one that would be settled is: its record, and its queue's key if it is not scheduled.
local function judge_unheld(shard, host, id, url, capture, mark, live)
  if capture ~= '' and is_captured(shard, id, mark) then return 'R' end
  if live then return 'X' end
  local key, record = nil, call('HGET', shard.T .. 'w' .. host.name, pack('>I6', id))
  if not record then key, record = locate(shard, host, id) end
  if not record or url_of(record) ~= url then return 'X' end
  local _, _, _, _, old_capture = history_of(record)
  if old_capture ~= '' then return 'X' end
  return 'S', record, key
end

local function judge_held(record, url, capture, live)
  if url_of(record) ~= url then return 'X' end
  if byte(record, 7) % 2 == 1 and capture ~= '' then
    local _, _, _, _, old_capture = history_of(record)
    if old_capture == capture then return 'R' end
  end
  return live and 'S' or 'X'
end

local function settle_unheld(shard, host, part, live, now)
  local verdict, record, key = judge_unheld(shard, host, part[1], part[2], part[3], part[4], live)
  if verdict ~= 'S' then return verdict end
  if key then take_queued(host, key, record) else unschedule(shard, host.name, record) end
  apply(shard, host, part, record, now)
  return verdict
end

local function settle_held(shard, host, part, live, record, now)
  local verdict = judge_held(record, part[2], part[3], live)
  if verdict ~= 'S' then return verdict end
  apply(shard, host, part, record, now)
  local totals = totals_of(shard)
  totals.leased = totals.leased - 1
  return verdict
end

-- `ids` and `held` are what was asked of the lease and what it holds, after the lease itself.
local function settle_parts(shard, host, parts, ids, held, live, now, verdicts)
  local gone = {}
  for place, part in ipairs(parts) do
    local id, record, verdict = ids[place + 1], held[place + 1], nil
    if record and not gone[id] then
      verdict = settle_held(shard, host, part, live, record, now)
      if verdict == 'S' then
        gone[id] = true
        gone[#gone + 1] = id
      end
    else
      verdict = settle_unheld(shard, host, part, live, now)
    end
    verdicts[#verdicts + 1] = verdict
  end
  if #gone > 0 then spread('HDEL', lease_key(shard.T, host.name), gone) end
end

-- `in_backoff` is 0 where nothing is said of it, 1 for no and 2 for yes.
local function learn(shard, host, next_contact, delay, note, in_backoff)
  if delay then host.delay = delay end
  if note == '' then
    call('HDEL', shard.T .. 'o', host.name)
  elseif note then
    call('HSET', shard.T .. 'o', host.name, note)
  end
  if in_backoff == 1 then
    call('ZREM', shard.T .. 'r', host.name)
  elseif in_backoff == 2 then
    call('ZADD', shard.T .. 'r', 0, host.name)
  end
  host.next_contact = max(host.next_contact, next_contact)
end

local function settle_lease(shard, settlement, now, verdicts)
  local name, token, release, next_contact, delay, note, parts, in_backoff = unpack(settlement)
  local host = known_host(shard, name)
  if not host then
    for _ = 1, #parts do verdicts[#verdicts + 1] = 'X' end
    return
  end
  local ids = {''}
  for place, part in ipairs(parts) do ids[place + 1] = pack('>I6', part[1]) end
  local held = host.leased and read_fields(lease_key(shard.T, name), ids, 1, #ids) or {}
  local grant = held[1] and unpack_grant(held[1])
  local live = grant and grant.token == token
  settle_parts(shard, host, parts, ids, held, live, now, verdicts)
  if live then
    learn(shard, host, next_contact, delay, note, in_backoff)
    if release then end_lease(shard, host, grant) end
  end
end

local function settle(keys, arguments)
  local now, names, settlements = unpack(decode(arguments[1]))
  local shard, verdicts, hosts = open_shard(keys[1]), {}, {}
  shard.now, shard.sums, shard.captures = now, {}, {}
  for place, settlement in ipairs(settlements) do hosts[place] = settlement[1] end
  look_up(shard, hosts)
  for _, settlement in ipairs(settlements) do settle_lease(shard, settlement, now, verdicts) end
  write_captures(shard)
  for number, value in pairs(shard.sums) do call('HINCRBY', shard.T .. 'c', names[number], value) end
  commit(shard)
  return table.concat(verdicts)
end

-- Of `count` tasks, beginning at `first` in a flat list of their ids, URLs, captures and marks, what `settle` would say.
local function preview_lease(shard, name, token, count, asked, first, answers)
  local host, ids = shard.hosts[name], {''}
  for place = 1, count do ids[place + 1] = pack('>I6', asked[first + 4 * place - 4]) end
  local held = host and host.leased and read_fields(lease_key(shard.T, name), ids, 1, #ids) or {}
  local live = held[1] and decode(held[1])[1] == token
  answers[#answers + 1] = live and 'L' or '-'
  for place = 1, count do
    local at, verdict = first + 4 * place - 4, 'X'
    if held[place + 1] then
      verdict = judge_held(held[place + 1], asked[at + 1], asked[at + 2], live)
    elseif host then
      verdict = judge_unheld(shard, host, asked[at], asked[at + 1], asked[at + 2], asked[at + 3], live)
    end
    answers[#answers + 1] = verdict
  end
end

-- What `settle` would answer: for each lease whether it is live, then its verdicts. A flat list: how many leases; for each
-- its host, its token, how many tasks, and these.
local function preview(keys, arguments)
  local asked = decode(arguments[1])
  local shard, answers, hosts, at = open_shard(keys[1]), {}, {}, 2
  shard.captures = {}
  for place = 1, asked[1] do
    hosts[place] = asked[at]
    at = at + 3 + 4 * asked[at + 2]
  end
  look_up(shard, hosts)
  at = 2
  for place = 1, asked[1] do
    preview_lease(shard, hosts[place], asked[at + 1], asked[at + 2], asked, at + 3, answers)
    at = at + 3 + 4 * asked[at + 2]
  end
  return table.concat(answers)
end

-- `preview` for the tasks that nearly all are: held by the live lease, and never tried before. A flat list: how many
-- leases; for each its host, its token, how many tasks, and their ids and URLs. '?' stands for a task that is not so.
local function preview_held(keys, arguments)
  local asked = decode(arguments[1])
  local T, answers, at = keys[1], {}, 2
  for _ = 1, asked[1] do
    local token, count, fields = asked[at + 1], asked[at + 2], {''}
    for place = 1, count do fields[place + 1] = pack('>I6', asked[at + 2 * place + 1]) end
    local held = read_fields(lease_key(T, asked[at]), fields, 1, count + 1)
    local live = held[1] and decode(held[1])[1] == token
    answers[#answers + 1] = live and 'L' or '-'
    for place = 2, count + 1 do
      local record = live and held[place]
      local fresh = record and byte(record, 7) % 2 == 0 and unpack_from('>I2c0', record, 8) == asked[at + 2 * place]
      answers[#answers + 1] = fresh and 'S' or '?'
    end
    at = at + 3 + 2 * count
  end
  return table.concat(answers)
end

-- Leases that are lost, tasks whose time has come

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
  local attempts, crashes, first_failed, mark, capture = history_of(record)
  if first_failed == 0 then first_failed = now end
  return with_history(record, attempts, crashes + 1, first_failed, mark, capture), crashes + 1
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

-- 1: the task is dead now; 0: it was noted; -1: it is neither leased nor, if an id is given, queued.
local function strike(keys, arguments)
  local call_id, name, url, now, limit, kind, error, id = unpack(decode(arguments[1]))
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

-- Which of a host's URLs are queued, a slice at a time: the next slice's priority (-1: no more) and place, then the records
-- found. With a stem, those too that may be another spelling of what begins so: a URL is the same as all its other
-- spellings up to the first escape, query or parameter.
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

-- What is known of a URL, except whether it is queued: state, record, and the time of its retry.
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
  if letter then return {'dead', decode(letter)[4]} end
  return {'queued or done'}
end

-- Dead letters

-- A slice of the letters after a task id: the last id looked at (-1: no more), then host, kind, error, time and record.
local function dead_letters(keys, arguments)
  local after, kind, name, limit = arguments[1], arguments[2], arguments[3], tonumber(arguments[4])
  local T = keys[1]
  local found = call('ZRANGEBYSCORE', T .. 'z', '(' .. after, '+inf', 'WITHSCORES', 'LIMIT', 0, LETTERS_SLICE)
  local letters, count = {'-1'}, 0
  for position = 1, #found, 2 do
    if count == limit then break end
    local field = found[position]
    local host = sub(field, 1, field:find('\0', 1, true) - 1)
    local fields = decode(call('HGET', T .. 'x', field))
    if (kind == '' or kind == fields[1]) and (name == '' or name == host) then
      letters[#letters + 1] = {host, unpack(fields)}
      count = count + 1
    end
    if #found == 2 * LETTERS_SLICE then letters[1] = found[position + 1] end
  end
  return letters
end

-- Takes the dead among these URLs from the letters; each is host and record.
local function take_dead(shard, pairs_of_host_and_url)
  local taken = {}
  for _, pair in ipairs(pairs_of_host_and_url) do
    local field = letter_field(pair[1], pair[2])
    local letter = call('HGET', shard.T .. 'x', field)
    if letter then
      call('HDEL', shard.T .. 'x', field)
      call('ZREM', shard.T .. 'z', field)
      local totals = totals_of(shard)
      totals.dead = totals.dead - 1
      taken[#taken + 1] = {pair[1], decode(letter)[4]}
    end
  end
  return taken
end

local function revive(keys, arguments)
  local now, urls = unpack(decode(arguments[1]))
  local shard = open_shard(keys[1])
  local taken = take_dead(shard, urls)
  for _, letter in ipairs(taken) do
    local host = known_host(shard, letter[1])
    local _, _, _, mark, capture = history_of(letter[2])
    wake(host, now)
    put_back(shard, host, with_history(letter[2], 0, 0, 0, mark, capture))
  end
  commit(shard)
  return #taken
end

local function drop(keys, arguments)
  local shard = open_shard(keys[1])
  local taken = take_dead(shard, decode(arguments[1]))
  local totals = totals_of(shard)
  totals.done = totals.done + #taken
  commit(shard)
  return #taken
end

-- What is known

local function host_fields(T, name)
  local raw = call('HGET', T .. 'h', name)
  if not raw then return false end
  local grant = call('HGET', lease_key(T, name), '')
  local note, in_backoff = call('HGET', T .. 'o', name) or '', call('ZSCORE', T .. 'r', name) and 1 or 0
  if not grant then return {name, raw, note, in_backoff} end
  local live = unpack_grant(grant)
  return {name, raw, note, in_backoff, live.token, live.node, format('%.17g', live.deadline)}
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

-- Lets the hosts in back-off that nobody holds be contacted from now on.
local function hurry(keys, arguments)
  local shard, now, hurried = open_shard(keys[1]), tonumber(arguments[1]), 0
  local names = call('ZRANGE', keys[1] .. 'r', 0, -1)
  look_up(shard, names)
  for _, name in ipairs(names) do
    local host = known_host(shard, name)
    if host and not host.leased and host.next_contact > now then
      host.next_contact = now
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
    call('GET', T) or 0, call('GET', T .. 'u') or '',
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

-- The time that coordinators share: the latest that any of them has told, as text, so that nothing of it is lost.
local function keep_time(keys, arguments)
  local kept = call('GET', keys[1]) or '0'
  if tonumber(arguments[1]) <= tonumber(kept) then return kept end
  call('SET', keys[1], arguments[1])
  return arguments[1]
end

-- Contents

-- An entry and the one that it is near to. It begins with the length of that one's digest, zero if none, and the digest.
local function with_nearest(key, entry)
  local size = byte(entry, 1)
  return {entry, size > 0 and call('HGET', key, sub(entry, 2, 1 + size)) or ''}
end

-- Remembers contents that are new to the domain. Where others have recorded since the caller looked, nothing is done and
-- it is told what they recorded. A content is digest, sketch (or empty), whether it joins the sketches, entry.
-- The answer for one that is new, and near to no other, is empty.
local function record_contents(keys, arguments)
  local name, known, contents_max, contents = unpack(decode(arguments[1]))
  local entries, log = keys[1] .. 'e' .. name, keys[1] .. 'i' .. name
  local length = call('STRLEN', log)
  if known >= 0 and length ~= known then return {call('GETRANGE', log, known, -1)} end
  local digests, fields, fresh, room = {}, {}, {}, contents_max - call('HLEN', entries)
  for place, content in ipairs(contents) do digests[place] = content[1] end
  local stored, answers = read_fields(entries, digests, 1, #digests), {}
  for place, content in ipairs(contents) do
    local digest, sketch, joins, entry = unpack(content)
    if not stored[place] and not answers[digest] and room > 0 then
      fields[#fields + 1] = digest
      fields[#fields + 1] = entry
      room = room - 1
      if joins then fresh[#fresh + 1] = sketch .. digest end
      answers[place] = byte(entry, 1) == 0 and '' or nil
    end
    -- The same content may be there twice: the second repeats the first.
    answers[digest] = answers[digest] or stored[place] or entry
  end
  if #fields > 0 then spread('HSET', entries, fields) end
  if #fresh > 0 then call('APPEND', log, table.concat(fresh)) end
  local replies = {}
  for place, digest in ipairs(digests) do replies[place] = answers[place] or with_nearest(entries, answers[digest]) end
  return {false, table.concat(fresh), replies}
end

local function register(name, body, flags)
  local function callback(keys, arguments)
    if not call then set_names() end
    return body(keys, arguments)
  end
  redis.register_function({function_name = 'drumlin_@VERSION@_' .. name, callback = callback, flags = flags or {}})
end

register('add', add)
register('lease', lease)
register('visit', visit)
register('extend', extend)
register('settle', settle)
register('expire', expire)
register('release_nodes', release_nodes)
register('strike', strike)
register('reprioritise', reprioritise)
register('revive', revive)
register('drop', drop)
register('set_delay', set_delay)
register('hurry', hurry)
register('count', count)
register('claim', claim)
register('keep_time', keep_time)
register('record_contents', record_contents)
register('preview', preview, {'no-writes'})
register('preview_held', preview_held, {'no-writes'})
register('find', find, {'no-writes'})
register('story', story, {'no-writes'})
register('dead_letters', dead_letters, {'no-writes'})
register('host_state', host_state, {'no-writes'})
register('hosts', hosts, {'no-writes'})
register('stats', stats, {'no-writes'})
