"""Every figure of the notebooks: ``plot_x(table, ...)`` draws the table it is given and adds labels, no statistics.

Labels, units and scales come from ``hcilib.metrics``, intervals from the table's ``lo`` and ``hi``. What is missing is
shown as missing, never as zero. Each returns the Axes it drew on (``plot_panels`` an array of them).
"""

from hcilib.show.figures.bars import plot_baseline, plot_capacity, plot_factorial, plot_latency, plot_traffic
from hcilib.show.figures.curves import plot_panels, plot_scaling, plot_sweep
from hcilib.show.figures.failure import plot_failure
from hcilib.show.figures.forest import plot_forest
from hcilib.show.figures.method import plot_coverage, plot_precision, plot_regression
from hcilib.show.figures.points import plot_audit, plot_pareto, plot_pareto_panels
from hcilib.show.figures.timeline import plot_plan

__all__ = [
    "plot_audit",
    "plot_baseline",
    "plot_capacity",
    "plot_coverage",
    "plot_factorial",
    "plot_failure",
    "plot_forest",
    "plot_latency",
    "plot_panels",
    "plot_pareto",
    "plot_pareto_panels",
    "plot_plan",
    "plot_precision",
    "plot_regression",
    "plot_scaling",
    "plot_sweep",
    "plot_traffic",
]
