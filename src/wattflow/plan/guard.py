"""The guard: any policy under the shield's budget, with kube-scheduler in its place while the budget is spent.

What is observed and what it may cost are the shield's: the shadow, the ledgers beside both references and the budget of
the stream (`plan.shield`). What is chosen is the policy itself while the budget lasts, and the reference with all nodes
on while it is spent. Nothing is raced, so nothing is known of the joules that the policy saves. Where the policy
carries a time-out, nodes sleep no sooner than sleep is priced at: three times as late, again and again, until it is
beyond that, by what its workflows were late or sooner up to now.

Refused are policies that plan ahead, whose plans count on places that another rule has taken meanwhile, and those that
keep a cap, which the reference does not know.
"""

from __future__ import annotations

from dataclasses import replace

from wattflow.model.cluster import Cluster
from wattflow.model.errors import InvalidInput
from wattflow.plan import race, shield
from wattflow.policy import registry
from wattflow.policy.base import Policy, Steering
from wattflow.policy.portfolio import PORTFOLIO


class Guard(shield.Shield):
    """Exchanges a policy for the reference, and back, by what is observed."""

    def __init__(self, policy: Policy, cluster: Cluster) -> None:
        super().__init__(policy, cluster, "kubernetes", {})
        self._own = ":".join(part for part in policy.name.split(":") if not part.startswith("shield="))
        own_s = policy.sleep_after_s
        self._name, self._dials = self._own, {} if own_s is None else {"sleep": own_s}

    @property
    def choice(self) -> Policy:
        """The policy, or what stands in its place under its name."""
        if self._name == self._own:
            return replace(self._policy, sleep_after_s=self._dials.get("sleep", self._policy.sleep_after_s))
        # It takes requests as they are, at full clock; other offers would be looked at for nothing.
        whole = PORTFOLIO.with_params(**self._dials).with_settings(guarantees=(1.0,), frequencies=(0,))
        return replace(whole, name=self._policy.name)

    def _pick(self, arrived: int) -> tuple[str, race.Tried | None]:
        self._forbidden = self._own if self._spent else ""
        if self._spent:
            return "the budget is spent", None
        return "the budget allows it", race.Tried(self._own, self._priced(), 0.0, 0.0, 1.0, 1.0, 0)

    def _priced(self) -> race.Dials:
        """The policy's time-out, in steps: one that followed the price would change with every look."""
        after_s = self._policy.sleep_after_s
        if after_s is None:
            return {}
        rest_s = self._rest_s(1.0 + min(0.0, self.ledger.late))
        while after_s < rest_s:
            after_s = shield.CAREFUL * max(1.0, after_s)
        return {"sleep": after_s}

    def summary(self) -> dict[str, object]:
        """The shield's figures; joules saved are unknown."""
        return {**super().summary(), "saved": None}


def shielded(policy: Policy, reference: str) -> Policy:
    """Shield a policy as `:shield=REFERENCE` says: `wattflow` chooses by rehearsal, any other is guarded.

    Raises:
        InvalidInput: It plans ahead or keeps a cap, or the reference is another.
    """
    typed = f"{policy.name}:shield={reference}"
    if reference != "kubernetes":
        raise InvalidInput(typed, "a policy is shielded only beside `kubernetes`")
    if policy.name == registry.SHIELDED:
        return shield.rehearsed(policy, reference)
    if policy.plan is not None:
        raise InvalidInput(
            typed, "cannot be shielded: it plans ahead, and its plan counts on places that the reference would take"
        )
    if policy.settings.alike:
        raise InvalidInput(typed, "cannot be shielded: it keeps a cap, which the reference would exceed")
    return replace(policy, steer=steer)


def steer(policy: Policy, cluster: Cluster) -> Steering:
    """Watch a policy, with `kubernetes` as the reference."""
    return Guard(policy, cluster)


__all__ = ["Guard", "shielded", "steer"]
