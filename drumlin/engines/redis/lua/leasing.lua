-- `lease`, `visit`, `forget_hosts` and `extend`: hosts and their tasks given to nodes.

local function given_before(shard, names, request)
  local leases = {}
  for place, name in ipairs(names) do
    local grant = live_grant(shard, name)
    if grant and grant.lease_id == request .. '.' .. (place - 1) then
      local host, tasks = known_host(shard, name), {}
      local held = call('HGETALL', lease_key(shard.T, name))
      for position = 1, #held, 2 do
        if held[position] ~= '' then tasks[#tasks + 1] = held[position + 1] end
      end
      local note = call('HGET', shard.T .. 'o', name) or ''
      leases[#leases + 1] = {name, grant.lease_id, pace_of(host), note, tasks, format('%.17g', grant.deadline)}
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
    local grant = {lease_id = request .. '.' .. (place - 1), node = node, deadline = deadline, delay = delay}
    local tasks = hand_out(shard, host, grant, size)
    host.leased = true
    urls_max = urls_max - #tasks
    given[place] = name
    deadlines[#deadlines + 1] = written
    deadlines[#deadlines + 1] = name
    leases[place] = {name, grant.lease_id, pace_of(host), notes[place] or '', tasks, written}
  end
  spread('ZADD', T .. 'd', deadlines)
  spread('SADD', T .. 'n' .. node, given)
  remember_call(T, request, encode(given), now)
  commit(shard)
  return leases
end

-- A lease without tasks, of any host that nobody holds and whose next contact has come.
local function visit(keys, arguments)
  local name, node, lease_id, deadline, due_by, delay = unpack(decode(arguments[1]))
  local T = keys[1]
  local shard = open_shard(T)
  local host = known_host(shard, name) or host_from(name, false)
  local before = host.leased and live_grant(shard, name)
  -- If the lease has this very id, this is the same call, sent again.
  if not (before and before.lease_id == lease_id) then
    if before or host.next_contact > due_by then return false end
    keep(shard, host)
    hand_out(shard, host, {lease_id = lease_id, node = node, deadline = deadline, delay = delay}, 0)
    host.leased = true
    call('ZADD', T .. 'd', deadline, name)
    call('SADD', T .. 'n' .. node, name)
    commit(shard)
  end
  return {name, lease_id, pace_of(host), call('HGET', T .. 'o', name) or '', {}, format('%.17g', deadline)}
end

-- Forgets hosts without any accepted URL, if no node holds them and the time of their next contact has come.
local function forget_hosts(keys, arguments)
  local names, now = unpack(decode(arguments[1]))
  local T, kept = keys[1], {}
  for _, name in ipairs(names) do
    local raw = call('HGET', T .. 'h', name)
    local host = raw and host_from(name, raw)
    if host and host.urls == 0 then
      if host.leased or host.next_contact > now then
        kept[#kept + 1] = name
      else
        call('HDEL', T .. 'h', name)
        call('HDEL', T .. 'o', name)
        call('ZREM', T .. 'r', name)
        call('HDEL', T .. 'p', name)
      end
    end
  end
  return kept
end

local function extended(shard, name, grant, tasks)
  local note = call('HGET', shard.T .. 'o', name) or ''
  local pace, deadline = pace_of(known_host(shard, name)), format('%.17g', grant.deadline)
  return {name, grant.lease_id, pace, note, tasks, deadline, grant.node}
end

-- The tasks that this call gave out when it came the first time, as far as the lease still holds them.
local function extended_before(shard, renewals, before)
  local leases = {}
  for place, renewal in ipairs(renewals) do
    local name, lease_id, ids, tasks = renewal[1], renewal[2], before[place], {}
    local grant = live_grant(shard, name)
    leases[place] = false
    if ids and grant and grant.lease_id == lease_id then
      for _, id in ipairs(ids) do
        tasks[#tasks + 1] = call('HGET', lease_key(shard.T, name), id) or nil
      end
      leases[place] = extended(shard, name, grant, tasks)
    end
  end
  return leases
end

local function extend(keys, arguments)
  local call_id, now, deadline, renewals, delay = unpack(decode(arguments[1]))
  local T = keys[1]
  local shard, leases, given, some = open_shard(T), {}, {}, false
  local before = call('GET', T .. 'a' .. call_id)
  if before then return extended_before(shard, renewals, decode(before)) end
  for place, renewal in ipairs(renewals) do
    local name, lease_id, urls_max = unpack(renewal)
    local grant = live_grant(shard, name)
    leases[place], given[place] = false, false
    if grant and grant.lease_id == lease_id and grant.deadline > now then
      grant.deadline, grant.delay = deadline, max(grant.delay, delay)
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
