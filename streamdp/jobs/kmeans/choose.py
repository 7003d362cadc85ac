"""The default: which method, by analysis and public facts (epsilon, the paid size, attributes, clusters)."""

from __future__ import annotations

from streamdp.jobs.kmeans.dplloyd import dplloyd_impr
from streamdp.jobs.kmeans.grids import pruned_outcome, pruned_synopsis
from streamdp.jobs.kmeans.refined import refined_outcome, round_helps
from streamdp.jobs.kmeans.synopsis import MAX_CELLS, smallest_side
from streamdp.jobs.kmeans.task import Outcome, Task


def auto(task: Task) -> Outcome:
    """`refined` where its round is expected to place a centre better than a cell of the grid does, else `pruned`.

    With more attributes than a grid can halve, `dplloyd_impr`.
    """
    if grid_is_out_of_reach(task.attributes, task.clusters[-1]):
        return dplloyd_impr(task)
    size = task.paid_size()
    about = f"for about {size} rows, {task.attributes} attributes and {task.clusters[-1]} clusters"
    if round_helps(size, float(task.meter.left), task.attributes, task.clusters[-1]):
        return refined_outcome(task, size, f"{about} a noisy round places centres better than the grid")
    synopsis = pruned_synopsis(task, size, task.meter.left)
    return pruned_outcome(task, synopsis, f"{about} a noisy round places centres no better than the grid")


def grid_is_out_of_reach(attributes: int, clusters: int) -> bool:
    """Whether even the coarsest grid that divides every attribute has too many cells."""
    side = max(smallest_side(attributes, clusters), 2)
    return bool(side**attributes > MAX_CELLS)
