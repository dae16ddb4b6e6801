-- Shards and their hosts: read when they are needed, changed in memory, written once at the end by `commit`.

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

-- Shards and hosts

local function open_shard(T)
  return {T = T, hosts = {}, names = {}, totals = nil, sums = nil, attempts = nil, now = nil}
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

-- Reads several hosts with one call.
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

-- Marks a host to be written at the end, if it has changed by then.
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

-- Lets a host be found by its name from now on, because its first URL is accepted.
local function note_new(shard, name)
  shard.new = shard.new or {}
  shard.new[#shard.new + 1] = 0
  shard.new[#shard.new + 1] = name
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
  if shard.new then spread('ZADD', T .. 'm', shard.new) end
end

local function commit(shard)
  commit_hosts(shard)
  local totals = shard.totals
  if totals then
    local raw = pack(TOTALS, totals.scheduled, totals.leased, totals.done, totals.dead)
    if raw ~= totals.raw then call('SET', shard.T .. 'u', raw) end
  end
end
