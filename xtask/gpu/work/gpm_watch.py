"""Samples GPM of GPU 0 every 100 ms. Reads lines `FROM TO` (nanoseconds of CLOCK_MONOTONIC) and answers each with
the means of what lies wholly between them, as JSON."""

import json
import select
import sys
import time

import pynvml as nvml

SM_UTIL, SM_OCCUPANCY, ANY_TENSOR, DRAM = 2, 3, 5, 10
METRICS = {"sm_util": SM_UTIL, "sm_occupancy": SM_OCCUPANCY, "tensor": ANY_TENSOR, "dram": DRAM}

try:
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    if not nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice:
        sys.exit(print("this GPU has none"))
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    nvml.nvmlGpmSampleGet(gpu, samples[0])
except (nvml.NVMLError, AttributeError) as error:
    sys.exit(print(error))


def between(one, other):
    wanted = nvml.c_nvmlGpmMetricsGet_t()
    wanted.version = nvml.NVML_GPM_METRICS_GET_VERSION
    wanted.numMetrics = len(METRICS)
    wanted.sample1, wanted.sample2 = one, other
    for place, metric in enumerate(METRICS.values()):
        wanted.metrics[place].metricId = metric
    nvml.nvmlGpmMetricsGet(wanted)
    values = {}
    for place, name in enumerate(METRICS):
        metric = wanted.metrics[place]
        values[name] = metric.value if metric.nvmlReturn == 0 else None
    return values


print("ready", flush=True)
kept, last = [], time.monotonic_ns()
while True:
    ready, _, _ = select.select([sys.stdin], [], [], 0.1)
    if ready:
        line = sys.stdin.readline()
        if not line:
            break
        begin, end = (int(word) for word in line.split())
        inside = [values for start, stop, values in kept if start >= begin and stop <= end]
        answer = {"samples": len(inside)}
        for name in METRICS:
            known = [values[name] for values in inside if values[name] is not None]
            answer[name] = sum(known) / len(known) if known else None
        kept.clear()
        print(json.dumps(answer), flush=True)
        continue
    nvml.nvmlGpmSampleGet(gpu, samples[1])
    now = time.monotonic_ns()
    kept.append((last, now, between(*samples)))
    samples.reverse()
    last = now
