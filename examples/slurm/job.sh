#!/bin/bash
#SBATCH --job-name=job
#SBATCH --mem=2G
#SBATCH --time=01:00:00
#SBATCH --output=job-%j.out
# A job that Slurm would end with "Detected 1 oom_kill event". Without --high, zfolio keeps each
# task under the limit that Slurm has set; several tasks on one node share it, so give each its part.
set -euo pipefail

tasks=${SLURM_NTASKS_PER_NODE:-1}
high=()
if [ "$tasks" -gt 1 ] && [ -n "${SLURM_MEM_PER_NODE:-}" ]; then
	high=(--high "$((SLURM_MEM_PER_NODE * 9 / 10 / tasks))M")
fi
srun zfolio run "${high[@]}" -- python3 job.py
