"""Learned schedulers of the literature on our environment: same streams, seeds, features and reward as everyone.

Each module says what is taken from its paper and what differs. All are trained from scratch with plain numpy
(`network`), by `policy_gradient` or `deep_q`, on the vector environment; `play` rolls one on a scenario and `judging`
puts them into the tables of `research.evaluate`.
"""
