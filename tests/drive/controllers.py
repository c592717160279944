"""A campaign in a process of its own, which is told of it in a file."""

import contextlib
import json
from pathlib import Path

import hcilib as hci
from hcilib.model.plan import Plan
from hcilib.model.system import System
from hcilib.model.testbed import Testbed


def controller(file: Path, plan: Plan, bed: Testbed, system: System, run_dir: Path, kernels="", **options) -> str:
    """The code of one; `kernels`: the folder of hosts that share a kernel (loops)."""
    given = {"plan": plan.to_dict(), "bed": bed.model_dump(mode="json"), "system": system.to_dict(), "options": options}
    file.write_text(json.dumps({**given, "run_dir": str(run_dir), "kernels": str(kernels)}))
    here = str(Path(__file__).parent)
    return f"import sys; sys.path.append({here!r}); import controllers; controllers.measure({str(file)!r})"


def measure(file: str) -> None:
    given = json.loads(Path(file).read_text())
    with contextlib.ExitStack() as stack:
        if given["kernels"]:
            from loops import own_kernels

            stack.enter_context(own_kernels(Path(given["kernels"])))
        plan, system = Plan.from_dict(given["plan"]), System.model_validate(given["system"])
        bed = Testbed.model_validate(given["bed"])
        hci.run(plan, system, bed, given["run_dir"], progress=False, **given["options"])
