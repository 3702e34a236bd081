#!/bin/bash
# Runs an experiment by GNU parallel, one shard at a time on each host, and merges the files:
#
#   ./parallel.sh NAME|FILE SHARDS [HOST,...]
#
# The same command later goes on after the runs in the files. Hosts are reached by SSH, share this
# folder, and must be equal machines; without any, all shards run here, one after the other.
set -euo pipefail
experiment=$1 shards=$2 hosts=${3-:}
name=lab/$(basename "$experiment" .toml)

mkdir -p lab
# One job a host: shards that share a machine would disturb each other.
seq "$shards" | parallel --jobs 1 --sshlogin "$hosts" --workdir "$PWD" --line-buffer --tag \
    hugepilot lab run "$experiment" --shard "{}/$shards" -o "$name-{}.ndjson"
# Reached if all shards ended with 0: all runs have values.
mapfile -t files < <(seq -f "$name-%g.ndjson" "$shards")
hugepilot lab merge "${files[@]}" --force -o "$name.ndjson"
