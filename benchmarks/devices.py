"""Agents on several devices and in several processes: python -m benchmarks.devices

Weak scaling: as many agents on each device, on 1, 2, 4 and 8 of them; then the same agents on two
devices of one process, and of two. On a CPU devices are JAX's virtual ones, which share the cores:
with more devices than cores the time per device is to be compared, and what it grows by is what
dealing out costs. `sent` is how many rows of others a device has room for.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

D, DEGREE, RECORDS, TIMES = 100, 6, 20, 5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--agents", type=int, default=1000, help="on every device")
    options.add_argument("--rounds", type=int, default=20, help="in one call")
    options.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4, 8])
    options.add_argument("--one", action="store_true", help="measure here, and print JSON")
    asked = options.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.agents, asked.rounds)))
        return
    print(
        f"{asked.agents:,} agents per device, {DEGREE}-regular at random, d = {D}, {RECORDS}"
        f" records each; {os.cpu_count()} cores; milliseconds a round, median of {TIMES} calls"
    )
    print(f"{'devices':>8} {'agents':>9} {'a round':>9} {'per device':>11} {'sent':>14}")
    for devices in asked.devices:
        agents = asked.agents * devices
        [found] = started(agents, asked.rounds, devices, processes=1)
        print(
            f"{devices:>8} {agents:>9,} {found['ms']:>9.2f} {found['ms'] / devices:>11.2f}"
            f" {found['sent']:>7,} rows",
            flush=True,
        )
    two = 2 * asked.agents
    [one] = started(two, asked.rounds, 2, processes=1)
    both = started(two, asked.rounds, 1, processes=2)
    slower = max(found["ms"] for found in both)
    print(
        f"two devices with {two:,} agents: {one['ms']:.2f} ms a round in one process,"
        f" {slower:.2f} ms in two ({slower - one['ms']:+.2f} ms, {slower / one['ms'] - 1:+.0%})"
    )


def started(agents: int, rounds: int, devices: int, processes: int) -> list[dict[str, float]]:
    """What so many processes with so many devices each have measured."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.devices", "--one"]
    command += ["--agents", str(agents), "--rounds", str(rounds)]
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
    }
    if processes > 1:
        environment |= {"JAX_COORDINATOR_ADDRESS": address, "JAX_NUM_PROCESSES": str(processes)}
    running = [
        subprocess.Popen(
            command,
            env={**environment, "JAX_PROCESS_ID": str(number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    said = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit("a process that measures has failed: its message is above")
    # Libraries that connect processes write lines of their own.
    return [json.loads(text.splitlines()[-1]) for text in said]


def measured(agents: int, rounds: int) -> dict[str, float]:
    from hearsay.simulation.processes import join

    join()
    import jax
    import numpy as np

    import hearsay as hs
    from hearsay.graphs.halo import Blocks, plan
    from hearsay.problems.data.datasets import from_arrays
    from hearsay.simulation.layout import layout
    from hearsay.simulation.rounds import Rounds

    rng = np.random.default_rng(0)
    features = rng.normal(size=(agents * RECORDS, D))
    data = from_arrays(features, (features[:, 0] > 0).astype(float), feature_bound=1.0)
    problem = hs.problems.logistic(data, agents=agents)
    graph = hs.graphs.random(agents, degree=DEGREE, seed=0)
    algorithm = hs.dsgd(noise=0.1, sampling=hs.Cyclic(4))
    moving = Rounds(algorithm, problem, graph, [0], layout=layout(agents, "all"))
    spent = []
    # The first call is compiled on the way.
    for _ in range(TIMES + 1):
        began = time.perf_counter()
        moving.advance(rounds)
        moving.models.block_until_ready()
        spent.append(1000 * (time.perf_counter() - began) / rounds)
    shards = jax.device_count()
    sent = plan(graph.weights, Blocks(agents, shards)).table if shards > 1 else 0
    return {"ms": statistics.median(spent[1:]), "sent": sent}


if __name__ == "__main__":
    main()
