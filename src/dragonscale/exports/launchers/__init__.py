"""What starts the programs of an export on hosts: a shell script (with torchrun), Slurm, Kubernetes, SkyPilot."""
