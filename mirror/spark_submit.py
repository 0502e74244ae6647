"""``mirror audit`` as a file, which ``spark-submit`` needs. The master comes from ``spark-submit`` itself:

spark-submit --master URL "$(python -c 'import mirror; print(*mirror.__path__)')/spark_submit.py" -c mirror.yaml
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first in sys.path, where modules of ours would hide others of the same name.
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != Path(__file__).resolve().parent]
    from mirror.cli import main

    main(["audit", *sys.argv[1:]], prog_name="mirror")
