#!/bin/sh
# Make one cluster of the six servers, unless they are one already. Running it again does no harm.
set -eu
REDISCLI_AUTH=$(cat /run/redis/password)
export REDISCLI_AUTH
servers=""
for number in 11 12 13 14 15 16; do servers="$servers $NET.$number:6379"; done

whole() { redis-cli -h "$NET.11" cluster info | grep -q '^cluster_state:ok'; }

# shellcheck disable=SC2086  # one argument for each server
whole || redis-cli --cluster create $servers --cluster-replicas 1 --cluster-yes
tries=0
until whole; do
    tries=$((tries + 1))
    [ "$tries" -lt 120 ] || { echo "The cluster does not serve all slots after two minutes." >&2; exit 1; }
    sleep 1
done
