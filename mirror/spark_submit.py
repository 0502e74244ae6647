"""``mirror audit`` for ``spark-submit``, which wants a file, and says by itself which master it is for:

spark-submit --master URL "$(python -c 'import mirror; print(*mirror.__path__)')/spark_submit.py" -c mirror.yaml
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the file's folder in front, with modules of names that others have, too.
    sys.path[:] = [each for each in sys.path if not each or Path(each).resolve() != Path(__file__).resolve().parent]
    from mirror.cli import main

    main(["audit", *sys.argv[1:]], prog_name="mirror")
