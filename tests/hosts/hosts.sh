#!/usr/bin/env bash
# Several hosts on one machine: network namespaces, each with its own host name and a cable of a
# given rate to a common switch. For tests and benchmarks of what only happens between hosts.
#   tests/hosts/hosts.sh up N [RATE]    makes hosts n0 .. n<N-1>; RATE as tc has it (1gbit), or none
#   tests/hosts/hosts.sh rate RATE      another rate for all cables; none: unlimited
#   tests/hosts/hosts.sh mpirun RANKS-PER-HOST PROGRAM ...   runs it on all hosts, as from n0
#   tests/hosts/hosts.sh down           ends what runs there and removes all
# Sets of hosts are told apart by SIDESTEP_HOSTS (default: n), the beginning of their names.
# Exits with 77 and a reason where this user or this kernel may not do so.
set -euo pipefail

prefix=${SIDESTEP_HOSTS:-n}
switch=${prefix}switch
network=${SIDESTEP_HOSTS_NETWORK:-10.83.0}  # these addresses are seen inside the namespaces only
self=$(readlink -f "${BASH_SOURCE[0]}")

cannot() {
  echo "hosts.sh: skipped: $1" >&2
  exit 77
}

check_rights() {
  ((EUID == 0)) || cannot "network namespaces need root"
  local tool
  for tool in ip tc unshare mpirun; do
    command -v "$tool" > /dev/null || cannot "no $tool on this machine"
  done
  ip netns add "${prefix}probe" 2> /dev/null || cannot "this kernel or container allows no network namespaces"
  local works=yes
  ip -n "${prefix}probe" link add name b type bridge 2> /dev/null &&
    ip -n "${prefix}probe" link add name x type veth peer name y 2> /dev/null &&
    ip netns exec "${prefix}probe" tc qdisc add dev x root tbf rate 1gbit burst 512kb latency 50ms 2> /dev/null &&
    ip netns exec "${prefix}probe" unshare --uts true 2> /dev/null || works=no
  ip netns del "${prefix}probe"
  [[ $works == yes ]] || cannot "this kernel has no bridge, veth, tbf or private host names"
}

list_hosts() { ip netns list 2> /dev/null | awk '{print $1}' | grep -E "^${prefix}[0-9]+$" | sort -V || true; }

# limit NAMESPACE DEVICE RATE. The burst holds several 64 KB segments: a small one loses much of the rate.
limit() {
  ip netns exec "$1" tc qdisc del dev "$2" root 2> /dev/null || true
  [[ $3 == none ]] || ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$3" burst 512kb latency 50ms
}

limit_all() {
  local host
  for host in $(list_hosts); do
    limit "$host" cable "$1"
    limit "$switch" "to-$host" "$1"
  done
}

up() {
  local count=$1 rate=${2:-none} i host
  check_rights
  [[ -z $(list_hosts) ]] || cannot "hosts $prefix* exist already: hosts.sh down removes them"
  ip netns add "$switch"
  ip -n "$switch" link add name bridge type bridge
  ip -n "$switch" link set bridge up
  for ((i = 0; i < count; ++i)); do
    host=$prefix$i
    ip netns add "$host"
    ip -n "$host" link set lo up
    ip -n "$host" link add name cable type veth peer name "to-$host" netns "$switch"
    ip -n "$host" address add "$network.$((i + 1))/24" dev cable
    ip -n "$host" link set cable up
    ip -n "$switch" link set "to-$host" master bridge up
    # What `ip netns exec` shows as /etc/hosts there.
    mkdir -p "/etc/netns/$host"
    {
      echo "127.0.0.1 localhost"
      local j
      for ((j = 0; j < count; ++j)); do echo "$network.$((j + 1)) $prefix$j"; done
    } > "/etc/netns/$host/hosts"
  done
  limit_all "$rate"
}

down() {
  local host pids
  for host in $(list_hosts) "$switch"; do
    pids=$(ip netns pids "$host" 2> /dev/null || true)
    # shellcheck disable=SC2086  # one word a process
    [[ -z $pids ]] || kill -9 $pids 2> /dev/null || true
    ip netns del "$host" 2> /dev/null || true
    rm -rf "/etc/netns/$host"
  done
}

# on HOST COMMAND...: what ssh would do; Open MPI calls it with the command as shell words. The private
# host name keeps Open MPI's session folders and shared-memory files of the hosts apart.
on() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # for the inner shells
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
}

run() {
  local slots=$1 hosts="" host status=0
  shift
  for host in $(list_hosts); do hosts+=",$host:$slots"; done
  [[ -n $hosts ]] || { echo "hosts.sh: no hosts: hosts.sh up N first" >&2; exit 2; }
  agent=$(mktemp)
  trap 'rm -f "$agent"' EXIT  # not local: the trap runs after this function
  printf '#!/bin/sh\nSIDESTEP_HOSTS=%q exec %q on "$@"\n' "$prefix" "$self" > "$agent"
  chmod +x "$agent"
  # shellcheck disable=SC2016
  ip netns exec "${prefix}0" unshare --uts sh -c 'hostname "$0" && exec "$@"' "${prefix}0" \
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --host "${hosts#,}" \
    --mca plm rsh --mca plm_rsh_agent "$agent" --mca pml ob1 --mca btl vader,tcp,self \
    --mca btl_tcp_if_include "$network.0/24" --mca oob_tcp_if_include "$network.0/24" \
    --mca mpi_yield_when_idle 1 --oversubscribe --bind-to none "$@" || status=$?
  return "$status"
}

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "$self" >&2
  exit 2
}

command=${1:-}
(($# == 0)) || shift
case $command in
  up) [[ ${1:-} =~ ^[1-9][0-9]?$ ]] || usage; up "$@" ;;
  rate) [[ -n ${1:-} ]] || usage; limit_all "$1" ;;
  down) down ;;
  on) on "$@" ;;
  mpirun) (($# >= 2)) || usage; run "$@" ;;
  *) usage ;;
esac
