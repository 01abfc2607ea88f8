#!/bin/bash
# Submit: sbatch --account=YOUR_ACCOUNT examples/slurm/srun.sh train.py [ARGUMENTS]
# One process per GPU, started by srun, as Lightning and zarr-torch-dataset's README have it. Several nodes, as
# options before the script's name: sbatch --nodes=2 …
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4  # one for each GPU
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=3
#SBATCH --hint=nomultithread
#SBATCH --time=2:00:00
#SBATCH --output=%x-%j.log

export PYTHONUNBUFFERED=1
export TMPDIR=${JOBSCRATCH:-${TMPDIR:-/tmp}}
source "${VENV:-$HOME/venv}/bin/activate"

# Lightning has its own names for this; torch.distributed.init_process_group and Penstock read these variables.
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((15000 + SLURM_JOB_ID % 10000))
task='RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec python "$@"'
srun --kill-on-bad-exit=1 bash -c "$task" task "$@"

returned_code=$?
echo "> script completed with exit code ${returned_code}"
exit ${returned_code}
