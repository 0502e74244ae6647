"""``mirror audit`` as a file, because ``spark-submit`` runs only files. ``spark-submit`` also sets the master:

spark-submit --master URL "$(python -c 'import mirror; print(*mirror.__path__)')/spark_submit.py" -c mirror.yaml
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first in sys.path, where the mirror's own modules would hide others of the same
    # name.
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != Path(__file__).resolve().parent]
    from mirror.cli import main

    main(["audit", *sys.argv[1:]], prog_name="mirror")
