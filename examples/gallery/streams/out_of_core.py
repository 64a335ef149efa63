"""
Out of core: any number of rows in 512 MB, with progress
========================================================

``fit_tables`` reads files in chunks and keeps sums, so its memory does not grow with the data. The baseline reads all
files with pandas and fits in memory. Each fit runs in a process of its own, whose peak of memory Linux reports.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder, n_rows, n_files = Path(tempfile.mkdtemp()), 200_000, 8
random = np.random.default_rng(1)
for k in range(n_files):
    log = {f"x{j}": random.normal(size=n_rows) for j in range(20)}
    log |= {"reward": log["x0"] + random.normal(size=n_rows), "episode": n_rows * k + np.arange(n_rows) // 50}
    log["done"] = np.arange(n_rows) % 50 == 49
    pq.write_table(pa.table(log), folder / f"{k}.parquet", use_dictionary=False)
size = sum(path.stat().st_size for path in folder.glob("*.parquet")) / n_files / 1e6
print(f"{n_files} files of {size:.0f} MB")

# %%
# A source may be a generator, which reports progress as its files are read.

COMMON = """
import sys
import numpy as np, lstd
from pathlib import Path
files = sorted(Path(sys.argv[1]).glob("*.parquet"))[: int(sys.argv[2])]
names = [f"x{j}" for j in range(20)]
memory = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1000
"""
STREAMED = """
def one_by_one(files):
    for k, path in enumerate(files):
        print(f"file {k + 1} of {len(files)}", file=sys.stderr)
        yield path
columns = {"features": names, "reward": "reward", "episode": "episode", "terminated": "done"}
lstd.fit_tables(files[:1], **columns, gamma=0.99, n_jobs=1, memory=2**25)
before = memory()
model = lstd.fit_tables(one_by_one(files), **columns, gamma=0.99, n_jobs=2, memory=2**29)
print(memory() - before, *model.coef_)
"""
IN_MEMORY = """
import pandas as pd
lstd.LSTD(gamma=0.99).fit(np.eye(20), np.zeros(20))
before = memory()
table = pd.concat([pd.read_parquet(path) for path in files])
X, y = table[names].to_numpy(), table["reward"]
model = lstd.LSTD(gamma=0.99).fit(X, y, episode=table["episode"], terminated=table["done"])
print(memory() - before, *model.coef_)
"""


def measure(program, count):
    """Return the peak of memory in MB and the weights."""
    command = [sys.executable, "-c", COMMON + program, str(folder), str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    print(*done.stderr.splitlines()[-2:], sep="; ")
    peak, *weights = map(float, done.stdout.split())
    return peak, weights


counts, programs = (1, 3, 8), {"fit_tables": STREAMED, "baseline: pandas and LSTD.fit": IN_MEMORY}
results = {name: [measure(program, count) for count in counts] for name, program in programs.items()}
fig, ax = plt.subplots(figsize=(7, 4))
for colour, (name, result) in zip(("C0", "0.5"), results.items(), strict=True):
    ax.plot([size * count for count in counts], [peak for peak, _ in result], "o-", color=colour, label=name)
ax.axhline(537, color="k", ls=":", label="bound of fit_tables: 512 MiB")
ax.set(xlabel="data, MB", ylabel="peak memory above the start, MB", title="Memory of a fit", ylim=(0, None))
ax.legend()
off = np.abs(np.subtract(results["fit_tables"][-1][1], results["baseline: pandas and LSTD.fit"][-1][1])).max()
print(f"largest difference of the weights: {'below 1e-9' if off < 1e-9 else off}")
