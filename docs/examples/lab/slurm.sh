#!/bin/bash
# Runs an experiment as a Slurm job array, one shard a task, and merges the files:
#
#   ./slurm.sh NAME|FILE SHARDS [SBATCH OPTIONS...]
#
# A task that is requeued or submitted again goes on after the runs in its file. The folder must be
# shared by the nodes. Runs are comparable on equal nodes only: choose them by --constraint.
#SBATCH --job-name=lab
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=lab/job-%A_%a.log
set -euo pipefail
experiment=$1 shards=$2
shift 2
name=lab/$(basename "$experiment" .toml)

if [ -n "${SLURM_ARRAY_TASK_ID-}" ]; then
    exec hugepilot lab run "$experiment" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
        -o "$name-$SLURM_ARRAY_TASK_ID.ndjson"
fi

mkdir -p lab
# A node for each task: another job would disturb the runs.
array=$(sbatch --parsable --exclusive --array="1-$shards" "$@" "$0" "$experiment" "$shards")
files=$(seq -f "'$name-%g.ndjson'" -s ' ' "$shards")
# The merge begins when all tasks ended with 0: all runs have values.
sbatch --dependency="afterok:${array%%;*}" --kill-on-invalid-dep=yes --output="$name-merge.log" \
    "$@" --wrap "hugepilot lab merge $files --force -o '$name.ndjson'"
