"""hcilib: drive hosts, run fio on a fleet of VMs, read what came back, and say whether a difference is real.

The names below are the whole public surface (``import hcilib as hci``). Rooms load on first use, so that
``import hcilib`` costs milliseconds and the analysis works where fabric is not installed.
"""

from __future__ import annotations

import sys
from importlib import import_module

from hcilib.model.extras import naming_extra
from hcilib.model.places import ROOT

__version__ = "0.2.0"

_ROOMS = {
    "model.patterns": "Pattern PlanError",
    "model.workload": "Cell",
    "model.plan": "Step Plan",
    "model.sweeps": "sweep",
    "model.objections": "objections",
    "model.testbed": "Testbed load_testbed",
    "model.system": "System load_system load_systems systems_of short_labels",
    "model.yaml_models": "TestbedError",
    "model.metrics": "METRICS metric",
    "model.caveats": "glossary",
    "drive.guard.preflight": "preflight require_ready PreflightError",
    "drive.launch.job": "job_files",
    "drive.systems": "prepare stated_settings",
    "drive.hosts.network": "network",
    "drive.discover.discover": "discover DiscoverError",
    "extras.fleet": "fleet_up fleet_down",
    "extras.libvirt": "ClonesError",
    "drive.guard.guard": "GuardError",
    "drive.hosts.lease": "LeaseError",
    "drive.campaign.campaign": "CampaignError",
    "drive.campaign.stopping": "stop StopError",
    "measure": "run open_testbed integrity",
    "read.foreign.results": "read_results recognise kinds_of_files log_series",
    "read.run.run": "read_hosts read_bins read_series read_io_gaps read_counters read_perfmon read_drives "
    "read_layers read_osds read_pool_fill read_events read_rollup read_histograms samples",
    "read.foreign.history": "history",
    "read.nodes.facts": "read_network",
    "read.run.accepted": "verify RunDirWarning",
    "read.run.journal": "read_set_speeds read_failed_events watch progress",
    "read.fio.table": "read_fio",
    "read.fio.fio": "FioOutputError",
    "read.published": "published published_claims published_datasheet published_facts stated_cpu PublishedDataError",
    "analyse.compare": "summarize compare rank overall",
    "analyse.stats": "chance",
    "analyse.rows": "select load_factors",
    "analyse.curves": "peak crossover load_losses best_points",
    "analyse.history": "changes levels check campaigns",
    "analyse.campaign": "regression chance_to_see noise precision",
    "analyse.latency": "percentiles latency_over_time latency_shares",
    "analyse.series": "mean_interval",
    "analyse.integrity": "integrity_verdicts",
    "analyse.failure": "failures aligned failure_summary failure_verdicts phases",
    "analyse.scaling": "saturation fleet_curves loads next_loads stops",
    "analyse.demand": "load_curve latency_over_iops load_within load_within_runs latency_at",
    "analyse.traffic": "expected_traffic check_traffic traffic bottleneck amplification",
    "analyse.neighbours": "neighbours",
    "model.schemes": "Mirror Raid5 Raid6 Raidz ErasureCode Tiers nested_mirror nested_parity parse_scheme",
    "analyse.capacity": "system_capacity pareto cost",
    "analyse.ceilings": "predicted ceilings stripe_bytes best_share "
    "drive_rates datasheet_rates against_ceiling against_datasheet pattern_cost",
    "analyse.budget": "latency_parts latency_budget latency_savings latency_waiting",
    "analyse.audit": "audit residuals",
    "analyse.claims": "check_claims claim_checks open_claims",
    "explanation": "explain",
    "say.answers": "answer",
    "say.physics.claims": "claim_words",
    "say.campaigns.history": "check_sentences check_lines",
    "say.lines": "comparability",
    "show.plots": "theme by marks finish at_right bars",
    "show.runs": "plot_failure plot_latency_over_time",
    "show.text": "text",
    "show.site.build": "report",
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = ["ROOT", "__version__", *sorted(_HOME)]


def __getattr__(name: str):
    """Load the room a public name lives in, once (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'hcilib' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"hcilib.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        raise naming_extra(error) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def in_notebook() -> None:
    """Where IPython runs already, as in a notebook, the library's errors are readable first
    (hcilib.show.errors)."""
    shell = sys.modules["IPython"].get_ipython() if sys.modules.get("IPython") else None
    if shell is not None:
        import_module("hcilib.show.errors").explain_errors(shell)
        whole = ("display.max_rows", 400, "display.max_colwidth", None, "display.max_columns", 50, "display.width", 200)
        import_module("pandas").set_option(*whole)  # a cut table is no evidence
        if "seaborn" in sys.modules:  # its figures then have the house style
            import_module("hcilib.show.plots").theme()


in_notebook()
