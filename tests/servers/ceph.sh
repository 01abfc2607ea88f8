#!/bin/bash
# A throw-away Ceph cluster of one with an S3 gateway: in memory, on loopback, no systemd, no cephx, no manager.
#   ceph.sh FOLDER GATEWAY_PORT MONITOR_PORT ACCESS_KEY SECRET_KEY
# Prints the endpoint once it answers, then waits until its standard input ends (or a signal comes) and takes
# everything down and FOLDER away. Every daemon is tied to this shell (pdeathsig), so not even SIGKILL leaves one behind.
set -euo pipefail
folder=$1 gateway=$2 monitor=$3 access_key=$4 secret_key=$5
url=http://127.0.0.1:$gateway
log=$folder/log
export CEPH_CONF=$folder/ceph.conf
unset CEPH_ARGS
daemons=()

finish() {
  status=$?
  trap '' TERM INT HUP
  { [ ${#daemons[@]} = 0 ] || kill -KILL "${daemons[@]}" || true; wait; } 2>/dev/null # all in memory: nothing to save
  [ "$status" = 0 ] || tail -n 20 "$log"/* >&2 || true
  rm -rf "$folder"
}
trap finish EXIT
trap 'exit 0' TERM INT HUP

daemon() { # daemon NAME COMMAND...: in the foreground of a background job, so that its pid is ours
  local name=$1
  shift
  setpriv --pdeathsig KILL "$@" </dev/null >"$log/$name.out" 2>&1 &
  daemons+=($!)
}
until_() { # until_ COMMAND...: for a minute at most
  local deadline=$((SECONDS + 60))
  until "$@" >/dev/null 2>&1 </dev/null; do
    [ $SECONDS -lt $deadline ] || { echo "ceph.sh: gave up waiting for: $*" >&2; exit 1; }
    sleep 0.1
  done
}
osd_is_up() { ceph --connect-timeout 10 osd stat | grep -q '1 up'; }
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$gateway" && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && grep -q ' 200 ' <&3); }

mkdir -p "$folder"/{mon,osd,rgw,run} "$log"
fsid=$(cat /proc/sys/kernel/random/uuid)
cat >"$CEPH_CONF" <<C
[global]
fsid = $fsid
mon_host = [v2:127.0.0.1:$monitor]
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
# The gateway defaults to "secure" towards monitors, which "none" above cannot do: it would hang.
ms_mon_client_mode = crc
run_dir = $folder/run
admin_socket = $folder/run/\$name.\$pid.asok
log_file = $log/\$name.log
log_to_stderr = false
crash_dir = $folder/run
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
mon_data_avail_crit = 1
[mon]
mon_data = $folder/mon
mon_cluster_log_file = $log/cluster.log
paxos_propose_interval = 0.1
[osd]
osd_data = $folder/osd
osd_objectstore = memstore
memstore_device_bytes = 8589934592
osd_crush_initial_weight = 1
osd_class_load_list = *
osd_class_default_list = *
[client.rgw]
rgw_data = $folder/rgw
rgw_frontends = beast endpoint=127.0.0.1:$gateway tcp_nodelay=1
rgw_thread_pool_size = 64
rgw_override_bucket_index_max_shards = 1
rgw_dynamic_resharding = false
rgw_enable_usage_log = false
rgw_enable_quota_threads = false
C

monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$monitor]" "$folder/monmap" >/dev/null
ceph-mon -i a --mkfs --monmap "$folder/monmap"
daemon mon ceph-mon -f -i a
osd=$(cat /proc/sys/kernel/random/uuid)
ceph --connect-timeout 30 osd new "$osd" </dev/null >/dev/null
timeout 60 ceph-osd -i 0 --mkfs --osd-uuid "$osd" >"$log/mkfs.out" 2>&1
daemon osd ceph-osd -f -i 0
until_ osd_is_up
daemon rgw radosgw -f -n client.rgw
until_ answers
timeout 60 radosgw-admin user create --uid=test --display-name=test \
  --access-key="$access_key" --secret-key="$secret_key" >"$log/user.out" 2>&1 </dev/null
echo "$url"
read -r _ || true
