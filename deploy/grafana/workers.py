"""By worker process: what each uses, holds and does."""

from deploy.grafana.panels import FLOW, PROCESS, QUARTER, THIRD, Query, graph, rate, row

TITLE = "workers"
TEXT = "What each process uses, holds and does: the workers by number, and the supervisor."
VARIABLES = ("source", "target", "instance")

NAME = "{{instance}} {{worker}}"
PAUSES = rate("mirror_gc_pause_seconds_bucket", PROCESS)
ON = f'{FLOW},instance=~"$instance"'

PANELS = (
    row("Processes"),
    graph(
        "CPU", "percentunit", Query(rate("process_cpu_seconds_total", PROCESS), NAME),
        text="1 is a whole core. A worker copies in one thread.", alert="MirrorCpuSaturated",
    ),
    graph("Memory", "bytes", Query(f"process_resident_memory_bytes{{{PROCESS}}}", NAME), text="Resident (RSS)."),
    graph(
        "File descriptors", "percentunit",
        Query(f"process_open_fds{{{PROCESS}}} / process_max_fds{{{PROCESS}}}", NAME),
        text="Open, as a part of how many may be.", alert="MirrorFileDescriptors",
    ),
    graph(
        "Restarts", "short", Query(f"increase(mirror_worker_restarts_total{{{PROCESS}}}[15m])", NAME),
        text="Within 15 minutes.", alert="MirrorWorkerCrashLooping",
    ),
    graph(
        "Up", "bool_yes_no", Query(f"mirror_worker_up{{{PROCESS}}}", NAME), text="Whether the worker's process runs."
    ),
    graph(
        "Last heard of", "s", Query(f"time() - mirror_worker_last_progress_timestamp_seconds{{{PROCESS}}}", NAME),
        text="A worker reports once a second, idle or not.", alert="MirrorWorkerStuck",
    ),
    row("Garbage collector"),
    graph(
        "Part of the time in pauses", "percentunit",
        Query(f"sum by (instance, worker) ({rate('mirror_gc_pause_seconds_sum', PROCESS)})", NAME),
        text="Copying stands still meanwhile. Above 5 % something is wrong.",
    ),
    graph(
        "99 % of pauses are shorter than", "s",
        Query(f"histogram_quantile(0.99, sum by (instance, worker, le) ({PAUSES}))", NAME),
        text="By buckets, so that it is rough.",
    ),
    graph(
        "Runs per second", "cps",
        Query(
            f"sum by (instance, worker, generation) ({rate('python_gc_collections_total', PROCESS)})",
            f"{NAME} generation {{{{generation}}}}",
        ),
        text="The oldest generation is the expensive one.",
    ),
    row("Work"),
    graph(
        "Partitions", "short", Query(f"sum by (instance, worker) (mirror_assigned_partitions{{{ON}}})", NAME),
        text="That the group has assigned to the worker.",
    ),
    graph(
        "Buffers", "percentunit",
        Query(f"mirror_buffer_bytes{{{PROCESS}}} / mirror_buffer_limit_bytes{{{PROCESS}}}", NAME),
        text="Full all the time: the destination is slow. Empty: the source or the link is.",
    ),
    graph(
        "Bytes fetched per second", "Bps",
        Query(f"sum by (instance, worker) ({rate('mirror_fetched_bytes_total', ON)})", NAME),
        text="In Fetch responses.",
    ),
    graph(
        "Requests per second", "reqps",
        Query(f"sum by (instance, worker) ({rate('mirror_fetch_requests_total', ON)})", f"Fetch {NAME}"),
        Query(f"sum by (instance, worker) ({rate('mirror_produce_requests_total', ON)})", f"Produce {NAME}"),
        text="Fetch to the source, Produce to the destination.",
    ),
    graph(
        "Rebalances", "short",
        Query(f"sum by (event) (increase(mirror_rebalances_total{{{ON}}}[$__rate_interval]))", "{{event}}"),
        text="Lost: the session had ended, with the worker stopped or the source away.",
    ),
    graph(
        "Offset commits per second", "cps",
        Query(f"sum by (result) ({rate('mirror_offset_commits_total', ON)})", "{{result}}"),
        text="To the flow's group at the source. Copying does not depend on them.",
    ),
    row("Service"),
    graph(
        "Last reload succeeded", "bool_yes_no",
        Query(f"mirror_config_last_reload_successful{{{PROCESS}}}", "{{instance}}"),
        text="No: the configuration was changed and is wrong.", width=THIRD,
    ),
    graph(
        "Log lines lost per second", "cps", Query(rate("mirror_log_lines_lost_total", PROCESS), "{{instance}}"),
        text="Nobody reads them, or the disk is full. Copying goes on.", width=QUARTER + 2,
    ),
    graph(
        "Exports to OpenTelemetry per second", "cps",
        Query(f"sum by (instance, result) ({rate('mirror_otlp_exports_total', PROCESS)})", "{{instance}} {{result}}"),
        text="With otel.exporter.otlp.endpoint. Failed: metrics_not_exported in the log says why.",
    ),
    graph(
        "Flows that are ready", "bool_yes_no",
        Query(f"min by (source, target) (mirror_flow_ready{{{ON}}})", "{{source}} → {{target}}"),
        text="On every host.",
    ),
)  # fmt: skip
