"""Records what ``against_ncu.py`` compares: captures of ``kernels.py``, and what Nsight Compute counts of the same.

    python benchmarks/limits/record.py OUT [NAME,...]

Needs a GPU and ``ncu``. OUT gets ``captures`` (a workspace), ``times.jsonl`` (when each kernel was launched) and
``ncu.csv``, with a row for each launch, whose kernel is called by its name in ``kernels.py``.
"""

import csv
import subprocess
import sys
from pathlib import Path

from against_ncu import METRICS

HERE = Path(__file__).parent
PROGRAM = [sys.executable, str(HERE / "kernels.py"), "--launches", "2"]
KERNELS = "regex:^(matmul|descriptor_matmul|gluon_matmul|attention|attention_backward|grouped_matmul|copy|add|softmax|"
KERNELS += "layer_norm|row_sum|transpose|gather|count|exponential|polynomial|chase|scan|sort)_kernel$|^triton_"


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    only = [f"--only={sys.argv[2]}"] if len(sys.argv) > 2 else []
    (out / "times.jsonl").unlink(missing_ok=True)
    tool, selected = [sys.executable, "-m", "kprof_inject"], ["--at", "func", "--at", "loop", "--at", "iter"]
    workspace = str(out / "captures")
    subprocess.run([*tool, "dump", "-o", workspace, "--", *PROGRAM, *only], check=True)
    subprocess.run([*tool, "insert", workspace, *selected], check=True)
    times = ["--times", str(out / "times.jsonl")]
    run = [*tool, "run", workspace, "--fit", "--launches", "all", "--no-replay", "--", *PROGRAM, *only, *times]
    subprocess.run(run, check=True)
    known = _known_metrics()
    missing = [name for name in METRICS if name.partition(".")[0] not in known]
    print("Nsight Compute has no", missing, file=sys.stderr)
    ncu = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    ncu += ["--nvtx", "--print-nvtx-rename", "kernel", "-k", KERNELS]
    ncu += ["--metrics", ",".join(name for name in METRICS if name not in missing)]
    with (out / "ncu.csv").open("w") as file:
        subprocess.run([*ncu, *PROGRAM, *only], stdout=file, check=True)


def _known_metrics() -> set[str]:
    said = subprocess.run(["ncu", "--query-metrics", "--csv"], capture_output=True, text=True, check=True).stdout
    return {row[0] for row in csv.reader(said.splitlines()) if row}


if __name__ == "__main__":
    main()
