"""For users' own tests: sample states and the policy contract as code."""

from wattflow.testing.check_policy import check_policy
from wattflow.testing.sample_states import Sample, sample_states

__all__ = ["Sample", "check_policy", "sample_states"]
