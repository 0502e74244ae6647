"""Everything that opens sockets to brokers: connections, receive buffers, and a cluster's brokers and leaders."""

import importlib.util
import sys

if "kafka" not in sys.modules and (_found := importlib.util.find_spec("kafka")) is not None:
    # Only the schemas of kafka-python, kafka.protocol, are used. The code of the package itself would load all of its
    # clients, about 90 modules, into every process.
    sys.modules["kafka"] = importlib.util.module_from_spec(_found)
