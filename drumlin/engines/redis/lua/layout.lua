#!lua name=drumlin_@VERSION@
--[[
The frontier on Redis or Valkey: every call of `drumlin.engines.base` is one function here, and so atomic.

The files of this folder are one program: `drumlin.engines.redis.commands` joins them in the order in which they use each
other, so a local name of one is known in all that follow. This one comes first.

All keys of a shard begin with the same hash tag T = {namespace:shard}, and so live in one slot of a cluster:

  T          number  the last task id given
  T~         number  how many ids up to that one were never given, because the frontier was imported and its tasks have
                     kept their ids: T minus T~ is how many URLs were accepted
  T!         number  how many steps of an import are done
  Tu         string  how many tasks are scheduled, leased, done and dead; the rest of those accepted are queued
  T-         never exists. Every call names T and T- as its keys: while the slot is being moved to another server,
             either server then answers TRYAGAIN before anything has run, so no call ever sees half a shard
  Th         hash    host → next contact, delay, URLs accepted, queued, pages, bytes, flags (bit p: something may be
                     queued with priority p; bit 10: leased)
  To         hash    host → note
  Tr         zset    hosts in back-off, in the order of their names
  Tp         hash    host → the longer delay of a host that asked us to slow down; other hosts are not in it
  Ty         zset    hosts that are not leased and have something queued, by next contact
  Tq<p><host>  list  what is queued with priority p, in order of task ids: records, see below
  Ts<b>:<host> set   the host's accepted URLs: the last 52 bits of each one's hash, in buckets that stay small enough to be kept as
                     sorted arrays of integers (8 bytes each); see `bucket_of`
  Td         zset    leased hosts, by deadline
  Tl<host>   hash    a lease: "" → its id, node, deadline, default delay; task id → record
  Tn<node>   set     the hosts that the node has leased
  Tt         zset    scheduled tasks (task id and host), by the time of their retry
  Tw<host>   hash    the host's scheduled tasks: task id → record
  Tm         zset    hosts with an accepted URL, in the order of their names
  Tx         hash    dead letters: host, zero, URL → kind, error, last failure, record
  Tv         zset    the same, in the order of kind, zero, host, zero, task id (6 bytes), URL
  Tj<kind>   zset    hosts by minus how many dead letters of the kind they have; the largest stands first
  Tk<n>      set     for tasks 256 n to 256 n + 255, the attempt by which each was last settled: 8 bits of the task's id
                     and 23 bits of hash. By it a settlement that is sent again is recognised; forgotten after a while
  Tc         hash    counters
  Ta<call>   string  the answer to a call, which must get the same answer if it is sent again; forgotten after minutes
  Tb<name>   string  a claim: until when, and who holds it
  Tg         zset    what is to be forgotten of Tk, Ta and Tb (k<n>, a<call>, b<name>), by when
  T+         string  has no meaning: it is written so replicas can confirm everything that was written before it
  T%         number  how often coordinators have looked whether this server can be written; it never falls, unless data
                     was lost
  Te<domain> hash    contents of a registrable domain: 12 bytes of the digest → nearest, URL, time, record id, overlap
  Tf<domain> string  SimHashes, which earlier versions kept; not read
  Ti<domain> string  the sketches of their texts in order of arrival: 88 bytes, and the 12 bytes of the digest

A record is a task: id (6 bytes), twice its priority (plus 1 if it has a history; the history), the URL's length (2
bytes), the URL, the rest. The history is attempts, crashes, first failure, and the last attempt as in Tk and in full;
most tasks never have one. URL and rest are as `drumlin.engines.redis.records` writes them; of these only the URL is
looked at here, to compare it.

The caller passes the time. Redis's own clock decides nothing: no key has an expiry of Redis's, and `expire` forgets.
]]

-- The libraries of Lua and Redis exist only while a function runs. So the names are declared here, and the first
-- function that runs sets them.
local call, pack, unpack_from, encode, decode, band, bor, sub, byte, char, format, floor, ceil, max, min

local function set_names()
  call, pack, unpack_from, encode, decode = redis.call, struct.pack, struct.unpack, cmsgpack.pack, cmsgpack.unpack
  band, bor, sub, byte, char, format = bit.band, bit.bor, string.sub, string.byte, string.char, string.format
  floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
end

-- Members of a bucket of seen URLs on average. The fullest hold about 2.5 times as many, and Redis keeps sets of
-- integers as sorted arrays up to 512 (set-max-intset-entries).
local BUCKET_LOAD = 192
local ATTEMPTS_REMEMBERED_S = 14 * 24 * 3600
local CALLS_REMEMBERED_S = 120
local CLAIM_KEPT_S = 60
local FORGOTTEN_MAX = 1000
local ARGUMENTS_MAX = 4000
local FIND_SLICE = 1000
local AFTER_ALL = '\255'

local LEASED = 1024
local PRIORITY_MAX = 9
local TOTALS = '>I6I6I6I6'
local HOST = '>ddI5I5I5I8I2'
local HOST_URLS = 17  -- where the URLs accepted stand in it
local HISTORY = '>I2I2dI4I2c0'
