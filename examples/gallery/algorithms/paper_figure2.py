"""
Figure 2 of the paper, in one cell
==================================

Boyan's, Uncorrected and Mixed LSTD(λ) on the nine problems of Osogami (AAAI-20). Each curve shows the lowest error over
the ridge coefficient α for every λ, and bars show the standard deviation over 50 runs, at every third λ. The
baseline is true online TD(λ) at its best step size. ``lstd reproduce`` draws Figures 2 to 5 and Tables 1 to 3, and
compares them with the paper.
"""

import matplotlib.pyplot as plt
import numpy as np

from lstd.experiments import run_sweep
from lstd.experiments.protocol import LMBDAS

algorithms = {"boyan": "C0", "uncorrected": "C1", "mixed": "C2", "true_online_td": "C3"}
fig, axes = plt.subplots(3, 3, figsize=(10, 8), sharex=True, layout="constrained")
for row, problem in enumerate(("small", "large", "deterministic")):
    for column, features in enumerate(("tabular", "binary", "normal")):
        ax, highest = axes[row, column], 0.0
        for k, (name, errors) in enumerate(run_sweep(problem, features, [*algorithms]).items()):
            mean = errors.mean(axis=0)  # over runs; shape (λ, α)
            at = np.arange(len(LMBDAS)), mean.argmin(axis=1)
            spread = errors[:, *at].std(axis=0)
            highest = max(highest, mean[at].max())
            bars = {"marker": ".", "capsize": 2, "yerr": spread, "errorevery": (k, 3)}  # side by side, to be told apart
            look = {"ls": "--"} if name == "true_online_td" else bars
            ax.errorbar(LMBDAS, mean[at], lw=1, color=algorithms[name], label=name.replace("_", " "), **look)
        ax.set(title=f"{problem}, {features}", ylim=(0, min(1.2, 1.6 * highest)))
axes[0, 2].legend(fontsize=8, loc="lower left")
fig.supxlabel("λ")
fig.supylabel("normalised mean squared error at the best α")

# %%
# No estimator is best everywhere. On the small problem with tabular features, Mixed is ahead and Uncorrected behind; on
# the large one the three are alike. The best α is chosen in hindsight here. :doc:`/guide/settings` says how small the
# error is if the data choose the settings.
