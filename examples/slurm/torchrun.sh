#!/bin/bash
# Submit: sbatch --account=YOUR_ACCOUNT examples/slurm/torchrun.sh train.py [ARGUMENTS]
# One torchrun per node, which starts a process per GPU, and all of them again when one fails. A node that fails has the
# job requeued, possibly on other nodes: save checkpoints, and resume from the last one. The -- keeps the program's own
# options from torchrun, which takes --run for one of its own.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=12
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log

export PYTHONUNBUFFERED=1
source "${VENV:-$HOME/venv}/bin/activate"

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 torchrun \
  --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$SLURM_GPUS_ON_NODE" --max-restarts=3 \
  --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$head:$((15000 + SLURM_JOB_ID % 10000))" \
  -- "$@"
