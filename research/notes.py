"""What has to be known to read the tables of kind ``learned``."""

from __future__ import annotations

from collections.abc import Sequence

from research import evaluate, fronts, hindsight, own_folder, sweep
from research.evaluate import Place

HELD_OUT = (
    "Joules are simulated. Each application is judged with weights trained without it and without any of these "
    "clusters. Presets are not unseen in every way: the portfolio's settings were chosen "
    "on streams on all three, of other applications, and dials of learned are the portfolio's, moved. The "
    "random clusters were used for choosing nothing: their column is what is known of clusters never seen.",
    "shielded: wattflow:shield=kubernetes as it serves, told neither the load nor the application.",
)
OTHER = (
    "Joules are simulated. These workflows are not ours: weights, dials and settings are those made from all "
    "applications of WfInstances. Copies of these applications are not held out.",
)
READING = (
    "A scenario is an application on a cluster at a load. Its seed draws 8 to 30 workflows from the application's "
    "recorded instances of at most 110 tasks, each equally likely, and their arrivals; instances are thus resampled "
    "with the seeds, and the level between application and seed is the scenario.",
    "Intervals: all applications share the clusters, so the first interval resamples applications and clusters, each "
    "as a whole, then loads and seeds; the second one resamples applications, their scenarios and their seeds. The "
    "wider one counts for goals and stands in the other columns. Signed ranks: over the applications' means (exact), "
    "which are independent, and over all scenarios as if they were; Holm over all of ours × opponents as one family. "
    "A tie is within half a per cent.",
    "Bound: mean and p95 response of workflows and makespan at most 1.02 × kubernetes with all nodes on, means over "
    f"seeds. The energy-HEFT sweep has {len(sweep.settings())} settings (eheft and dewts × slack or deadline × "
    "time-outs of sleep, break-even among them) and is chosen in each scenario with hindsight.",
    "Estimates are the truth with errors as the file says (spread of their logarithm). They stand for predictions: no "
    "predictor of `wattflow.predict` takes part, which would be right more often for some functions than for others.",
)
SEARCHES = (
    "Annealing and NSGA-II are no policies: they know all workflows and true runtimes beforehand. On streams of at "
    f"most {hindsight.MOST_TASKS} tasks, one for each application and cluster, with true estimates for everybody, each "
    "is given the seconds that shielded takes for the whole stream; both let nodes sleep and are simulated at last. "
    "Seconds of the search alone and with set-up are both told. Fronts: mean response and joules; ours are "
    f"{len(fronts.DIALS)} dials of learned.",
)


def notes(there: Sequence[Place], searched: bool) -> tuple[str, ...]:
    """Those that apply."""
    held_out = any(place.fold >= 0 for place in there)
    return (
        *(HELD_OUT if held_out else OTHER),
        *own_notes(there),
        _network(there),
        *READING,
        *(SEARCHES if searched else ()),
    )


def own_notes(there: Sequence[Place]) -> list[str]:
    """Of somebody's own workflows: which applications training has seen, and which files hold no workflow."""
    made = []
    for folder in sorted({place.folder for place in there if place.folder}):
        names = list(dict.fromkeys(place.application for place in there if place.folder == folder))
        seen, bad = own_folder.seen_in_training(folder, names), own_folder.left_out(folder, names)
        if seen:
            told = "the folder's name or a file's is one of WfInstances. This says nothing of unseen applications."
            made.append(f"Seen in training: {', '.join(seen)}; {told}")
        if bad:
            made.append(f"Left out, {len(bad)} files that hold no workflow: {'; '.join(bad)}")
    return made


def _network(there: Sequence[Place]) -> str:
    """Where the row `learned` has its network switched off."""
    off = [place for place in there if evaluate.dials(place.fold, place.load).get("lean") == 0.0]
    where = sorted({f"fold {place.fold} at {place.load:g}" for place in off})
    told = f"; so it is in {len(off)} of {len(there)} scenarios ({', '.join(where)})" if off else ""
    return (
        "learned: dials below the network were chosen for each fold and load on training applications; where none of "
        "those with the network keeps the bound as often as the portfolio's own setting, that one, with the network "
        f"switched off (lean = 0), may be chosen{told}. "
        "network: the same weights with the flagship's own dials and lean = 1 in every scenario."
    )
