"""The compiled loops of the sweep: LSTD(λ) for dense and for one-hot features, and TD(λ).

Features and rewards of a run come in, with many pairs (λ, α).
The error of each pair, summed over the steps, goes out.
"""
