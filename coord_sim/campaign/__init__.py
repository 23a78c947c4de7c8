"""Campaigns: many seeds, on many cores or machines, with one result whatever runs them."""

from coord_sim.campaign.batch import Batch, Failure, Job, run_batch
from coord_sim.campaign.checkpoint import CheckpointError, load, save
from coord_sim.campaign.coverage import Coverage, outline
from coord_sim.campaign.executors import SerialExecutor, WorkersDied, dask_cluster, process_pool
from coord_sim.campaign.judgement import Judge, Judgement, judged
from coord_sim.campaign.plan import Plan
from coord_sim.campaign.running import Campaign
from coord_sim.campaign.statistics import Statistics

__all__ = [
    "Batch",
    "Campaign",
    "CheckpointError",
    "Coverage",
    "Failure",
    "Job",
    "Judge",
    "Judgement",
    "Plan",
    "SerialExecutor",
    "Statistics",
    "WorkersDied",
    "dask_cluster",
    "judged",
    "load",
    "outline",
    "process_pool",
    "run_batch",
    "save",
]
