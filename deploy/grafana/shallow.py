"""The shallow path: how much is copied without being opened, and what that costs (KIP-712's chart)."""

from deploy.grafana.panels import FLOW, HALF, JOB, Query, figure, graph, quantile, rate, row

TITLE = "shallow path"
TEXT = "How many batches are copied without being opened, and what a gibibyte costs in CPU."
VARIABLES = ("source", "target")

BY_FLOW = "{{source}} → {{target}}"
ALL = rate("mirror_batches_total", FLOW)
SHALLOW = rate("mirror_batches_total", f'{FLOW},path="shallow"')
DEEP = rate("mirror_batches_total", f'{FLOW},path="deep"')
SPLITS = rate("mirror_batch_splits_total", FLOW)
BATCHES = rate("mirror_replicated_batches_total", FLOW)
BYTES = rate("mirror_replicated_bytes_total", FLOW)
# Processes belong to no flow, so that cost is that of everything that the job's mirrors do.
CPU = f"sum({rate('process_cpu_seconds_total', JOB)})"
GIB = f"(sum({rate('mirror_replicated_bytes_total', JOB)}) / 2^30)"

PANELS = (
    row("Now"),
    figure(
        "Shallow", "percentunit", f"sum({SHALLOW}) / sum({ALL})",
        text="Batches that were copied as they are, of all. The others were opened and rewritten.",
    ),
    figure("CPU-s per GiB", "s", f"{CPU} / {GIB}", text="All processes of the job's mirrors, by what they replicate."),
    figure("Mean batch", "bytes", f"sum({BYTES}) / sum({BATCHES})", text="As stored. The cost is per batch."),
    figure("Splits per second", "cps", f"sum({SPLITS})", text="Rebuilt batches that were too large (KIP-126)."),
    row("KIP-712"),
    graph(
        "CPU-seconds per GiB", "s", Query(f"{CPU} / {GIB}", "CPU-seconds per GiB"),
        text="What a mirror costs. Without traffic there is no value. Variables other than the job do not apply.",
        width=HALF,
    ),
    graph(
        "CPU and throughput", "short",
        Query(CPU, "cores"), Query(f"{GIB} * 1024", "MiB/s"),
        text="Both together: cores grow with batches, not with bytes.", width=HALF,
    ),
    row("Batches"),
    graph(
        "Shallow", "percentunit",
        Query(f"sum by (source, target) ({SHALLOW}) / sum by (source, target) ({ALL})", BY_FLOW),
        text="Batches that were copied as they are, of all.",
    ),
    graph(
        "Rewritten batches per second", "cps",
        Query(f"sum by (reason) ({DEEP})", "{{reason}}"),
        text="Batches of the source that were opened, and why.",
    ),
    graph(
        "Split batches", "percentunit",
        Query(f"sum by (source, target) ({SPLITS}) / sum by (source, target) ({BATCHES})", BY_FLOW),
        text="Of all batches. A split is work done twice: raise max.message.bytes of the destination.",
    ),
    graph(
        "Mean batch size", "bytes",
        Query(f"sum by (source, target) ({BYTES}) / sum by (source, target) ({BATCHES})", BY_FLOW),
        text="As stored.",
    ),
    graph(
        "Batches per Produce request", "short",
        Query(
            f"sum by (source, target) ({BATCHES}) / "
            f"sum by (source, target) ({rate('mirror_produce_requests_total', FLOW)})",
            BY_FLOW,
        ),
        text="Brokers take one batch of a partition in a request: more is several partitions at once.",
    ),
    graph(
        "Records per batch", "short",
        Query(
            f"sum by (source, target) ({rate('mirror_replicated_records_total', FLOW)}) / "
            f"sum by (source, target) ({BATCHES})",
            BY_FLOW,
        ),
        text="As producers made them.",
    ),
    graph(
        "Batch size, 50 % and 99 %", "bytes",
        *(
            Query(quantile(part, "mirror_batch_size_bytes", FLOW, "source, target"), f"{name}, {BY_FLOW}")
            for part, name in ((0.5, "50 %"), (0.99, "99 %"))
        ),
        text="As stored; of one batch of a request. By buckets, so that it is rough.",
    ),
    graph(
        "Produce request size, mean", "bytes",
        Query(
            f"sum by (source, target) ({rate('mirror_produce_request_size_bytes_sum', FLOW)}) / "
            f"(sum by (source, target) ({rate('mirror_produce_request_size_bytes_count', FLOW)}) > 0)",
            BY_FLOW,
        ),
        text="All batches of a request together. Small ones under load: few partitions have something to send at once.",
    ),
    row("Overhead"),
    graph(
        "Bytes fetched for each byte replicated", "short",
        Query(
            f"sum by (source, target) ({rate('mirror_fetched_bytes_total', FLOW)}) / "
            f"sum by (source, target) ({BYTES})",
            BY_FLOW,
        ),
        text="Near 1. More: responses that began inside a batch, or that were fetched again.",
    ),
    graph(
        "Oversize responses per second", "cps",
        Query(f"sum by (source, target) ({rate('mirror_oversize_fetches_total', FLOW)})", BY_FLOW),
        text="Fetch responses larger than a frame of the buffers.",
    ),
    graph(
        "Positions without proof per second", "cps",
        Query(f"sum by (source, target) ({rate('mirror_unproven_positions_total', FLOW)})", BY_FLOW),
        text="Positions at which the last batch could not be compared with the source.",
    ),
)  # fmt: skip
