"""The whole library in ten lines: make or load a workload, pick a cluster, simulate, compare, report."""

import wattflow as wf

workload = wf.generate.workload("montage", tasks=60, seed=1)
cluster = wf.load_cluster("mixed")
run = wf.simulate(workload, cluster, policy="fifo", seed=1)
figures = wf.metrics(run)
print(f"{figures['tasks']:.0f} tasks in {figures['makespan_s']:.1f} s with {figures['energy_j'] / 1000:.1f} kJ")
result = wf.compare(wf.Recipe("montage", tasks=60), cluster, policies=["fifo"], seeds=3)
print(f"over three draws: {result.summary('montage', 'fifo', 'energy_j').mean / 1000:.1f} kJ")
